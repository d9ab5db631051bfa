/* Search runs in a worker, which browsers refuse to start from file://. There, a hidden frame takes its place. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.terminate = () => frame.remove();
      this.ready = new Promise((done) => {
        const begin = () => {
          document.body.append(frame);
          const inside = frame.contentWindow;
          inside.postMessage = (data) => setTimeout(() => this.hear(data));
          const script = inside.document.createElement("script");
          script.src = url;
          script.onload = () => done(inside);
          inside.document.body.append(script);
        };
        if (document.body) begin();
        else document.addEventListener("DOMContentLoaded", begin);
      });
    }
    hear(data) {
      const message = new MessageEvent("message", { data });
      this.dispatchEvent(message);
      if (this.onmessage) this.onmessage(message);
    }
    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }
  };
}
