/* Algorithms 1 and 2 on robust multi-task regression in Gram form: what a careful C programmer would write by hand.
   Built by benchmarks/loop.py with gcc -O3 -march=native; no -ffast-math, so loops are written to vectorise without it. */
#include <math.h>
#include <string.h>

#define MAX_WIDTH 1024
#define MAX_TASKS 64

typedef struct {
    double alpha, eta, gamma, tau, sigma, mu, radius, ridge, divergence;
} Steps;

#ifdef ROW_DOTS
/* out = G v as one writes it first; a sum in order does not vectorise */
static void times(int d, const double *restrict G, const double *restrict v, double *restrict out) {
    for (int i = 0; i < d; i++) {
        double sum = 0;
        for (int j = 0; j < d; j++) sum += G[(long)i * d + j] * v[j];
        out[i] = sum;
    }
}
#else
/* out = G v with G symmetric: four columns a pass, so that the inner loop vectorises and out stays in registers or L1 */
static void times(int d, const double *restrict G, const double *restrict v, double *restrict out) {
    memset(out, 0, d * sizeof(double));
    int j = 0;
    for (; j + 4 <= d; j += 4) {
        const double *a = G + (long)j * d, *b = a + d, *c = b + d, *e = c + d;
        const double va = v[j], vb = v[j + 1], vc = v[j + 2], ve = v[j + 3];
        for (int i = 0; i < d; i++) out[i] += (a[i] * va + b[i] * vb) + (c[i] * vc + e[i] * ve);
    }
    for (; j < d; j++)
        for (int i = 0; i < d; i++) out[i] += G[(long)j * d + i] * v[j];
}
#endif

/* t with sum max(v - t, 0) = radius: Michelot's active-set loop */
static double threshold(int n, const double *v, double radius) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += v[i];
    double t = (sum - radius) / n, before = -INFINITY;
    while (t > before) {
        int count = 0;
        sum = 0;
        for (int i = 0; i < n; i++) {
            const int active = v[i] > t;
            sum += active ? v[i] : 0.0;
            count += active;
        }
        before = t;
        t = (sum - radius) / count;
    }
    return t;
}

static void project_l1(int n, double *v, double radius) {
    double magnitude[MAX_WIDTH], norm = 0;
    for (int i = 0; i < n; i++) magnitude[i] = fabs(v[i]);
    for (int i = 0; i < n; i++) norm += magnitude[i];
    if (norm <= radius) return;
    const double t = threshold(n, magnitude, radius);
    for (int i = 0; i < n; i++) v[i] = copysign(fmax(magnitude[i] - t, 0.0), v[i]);
}

static void project_simplex(int n, double *v, double radius) {
    const double t = threshold(n, v, radius);
    for (int i = 0; i < n; i++) v[i] = fmax(v[i] - t, 0.0);
}

void run(long steps, int projected, int T, int d, const Steps *p, const double *G, const double *c, const double *Gv,
         const double *cv, const double *qv, const double *y0, double *x, double *lam, double *theta, double *y,
         double *w) {
    double a[MAX_WIDTH], b[MAX_WIDTH], z[MAX_WIDTH], s[MAX_WIDTH], along_x[MAX_WIDTH], along_lam[MAX_TASKS], f_y[MAX_TASKS];
    for (long k = 0; k < steps; k++) {
        memset(along_x, 0, d * sizeof(double));
        for (int t = 0; t < T; t++) {
            const double *Gt = G + (long)t * d * d, *ct = c + t * d, *cvt = cv + t * d;
            double *th = theta + t * d, *wt = w + t * d;
            const double l = lam[t], ll = l * l, yt = y[t];
            /* w+ and f_y, with G w in a and Gv theta in b */
            times(d, Gt, wt, a);
            times(d, Gv + (long)t * d * d, th, b);
            double part[4] = {0, 0, 0, 0}, loss = 0;
            int i = 0;
            for (; i + 4 <= d; i += 4)
                for (int q = 0; q < 4; q++) part[q] += th[i + q] * (b[i + q] - 2 * cvt[i + q]);
            for (; i < d; i++) loss += th[i] * (b[i] - 2 * cvt[i]);
            loss += (part[0] + part[1]) + (part[2] + part[3]);
            f_y[t] = 0.5 * loss + 0.5 * qv[t] - p->divergence * (T * yt - 1);
            for (i = 0; i < d; i++)
                wt[i] -= p->eta * (ll * a[i] + p->ridge * wt[i] - yt * (b[i] - cvt[i]));
            /* g_theta_x w+, with G w+ in a and G z in b */
            for (i = 0; i < d; i++) z[i] = l * th[i] + (1 - l) * x[i];
            times(d, Gt, wt, a);
            times(d, Gt, z, b);
            for (i = 0; i < d; i++) along_x[i] += l * (1 - l) * a[i];
            double lane[4] = {0, 0, 0, 0}, sum = 0;
            for (i = 0; i + 4 <= d; i += 4)
                for (int q = 0; q < 4; q++)
                    lane[q] += (b[i + q] - ct[i + q]) * wt[i + q] + l * (th[i + q] - x[i + q]) * a[i + q];
            for (; i < d; i++) sum += (b[i] - ct[i]) * wt[i] + l * (th[i] - x[i]) * a[i];
            along_lam[t] = sum + (lane[0] + lane[1]) + (lane[2] + lane[3]);
        }
        /* x+ : f does not depend on x, so Gx = - g_theta_x w+ */
        if (projected) {
            for (int i = 0; i < d; i++) s[i] = x[i] + p->tau * along_x[i];
            project_l1(d, s, p->radius);
            for (int i = 0; i < d; i++) x[i] = p->gamma * s[i] + (1 - p->gamma) * x[i];
            for (int t = 0; t < T; t++) {
                const double to = fmin(fmax(lam[t] + p->tau * along_lam[t], 0.0), 1.0);
                lam[t] = p->gamma * to + (1 - p->gamma) * lam[t];
            }
        } else {
            int best = 0;
            for (int i = 1; i < d; i++)
                if (fabs(along_x[i]) > fabs(along_x[best])) best = i;
            for (int i = 0; i < d; i++) x[i] *= 1 - p->gamma;
            x[best] += p->gamma * (along_x[best] < 0 ? -p->radius : p->radius);
            for (int t = 0; t < T; t++)
                lam[t] = p->gamma * (along_lam[t] < 0 ? 0.0 : 1.0) + (1 - p->gamma) * lam[t];
        }
        /* theta+ with the new x */
        for (int t = 0; t < T; t++) {
            const double *ct = c + t * d, l = lam[t];
            double *th = theta + t * d;
            for (int i = 0; i < d; i++) z[i] = l * th[i] + (1 - l) * x[i];
            times(d, G + (long)t * d * d, z, a);
            for (int i = 0; i < d; i++) th[i] -= p->alpha * (l * (a[i] - ct[i]) + p->ridge * th[i]);
        }
        for (int t = 0; t < T; t++) y[t] += p->sigma * (f_y[t] - p->mu * (y[t] - y0[t]));
        project_simplex(T, y, 1.0);
    }
}
