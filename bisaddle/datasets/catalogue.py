"""Every file that a loader reads: what it is called, what it must contain, whose it is and where it is published."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """One file. Files of the same dataset and part are alternatives, in order of preference.

    rows, columns: as parsed, the target among the columns; None where the publisher lets the user choose.
    sha256, bytes: None for a file that each user makes; then the checksum is recorded instead of compared.
    url: None where the file cannot be downloaded without an account, or is not published in this form.
    optional: the data set can be loaded without this part.
    """

    dataset: str
    part: str
    file: str
    format: str
    rows: int
    columns: int | None
    sha256: str | None
    bytes: int | None
    licence: str
    page: str
    url: str | None = None
    optional: bool = False


_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/"
_FAIRML = "https://github.com/cran/fairml"
_FAIRML_COMMIT = "f1dac101d2f9f5a47f7a5ce3140a381b75325866"
_SURVEY = "national.longitudinal.survey"
_BLS = "U.S. Bureau of Labor Statistics public-use microdata"


def _libsvm(part: str, rows: int, columns: int, bytes: int, sha256: str, licence: str) -> Source:
    file = f"{part}_scale"
    page, url = f"{_LIBSVM}regression.html#{part}", f"{_LIBSVM}regression/{file}"
    return Source("mtl", part, file, "libsvm", rows, columns, sha256, bytes, licence, page, url)


SOURCES: tuple[Source, ...] = (
    _libsvm(
        "bodyfat",
        252,
        15,
        44525,
        "0407ae0c51cde1680850bf912ab701cd68826059738f3637d5d97ece49799912",
        "StatLib, A. G. Fisher; free to distribute, non-commercial use",
    ),
    _libsvm(
        "housing",
        506,
        14,
        72154,
        "bbacd2f526a038499717d5dc4b8895e6baf1e2351895b9360a84bcb31e104476",
        "StatLib / UCI, Harrison and Rubinfeld 1978; research use with citation; one column encodes race",
    ),
    _libsvm(
        "mg",
        1385,
        7,
        107369,
        "f6eea42e3b3e5053c34c974cf364bf51d23207de0b6ae7224bba9c5d0959a223",
        "Flake and Lawrence 2002; research use with citation",
    ),
    _libsvm(
        "mpg",
        392,
        8,
        27302,
        "e15f343cfd6bd926596fa80c241428a3b025a82815bce8ccb88160f0d1cee71d",
        "StatLib / UCI, Quinlan 1993; research use with citation",
    ),
    _libsvm(
        "space_ga",
        3107,
        7,
        252104,
        "acf41627906e9018193a70fdd9699587a510ee84183fd54d43ad46afdccad9f6",
        "StatLib, Pace and Barry 1997; research use with citation",
    ),
    Source(
        "nlsy79",
        "public",
        f"{_SURVEY}.csv",
        "csv",
        4908,
        18,
        "eb9aac72c2856c9b339be78ea0d937bae773e02d86fcdd0f92bfd509de72e4a2",
        476270,
        f"{_BLS}; R package fairml 0.8, MIT, M. Scutari; written as CSV from the .rda",
        _FAIRML,
    ),
    Source(
        "nlsy79",
        "public",
        f"{_SURVEY}.rda",
        "rda",
        4908,
        18,
        "55f24894ec3a091de48ed67218bdef93199f2a0c7917b9ff8af31ef744a727e7",
        57460,
        f"{_BLS}; R package fairml 0.8, MIT, M. Scutari",
        _FAIRML,
        f"https://raw.githubusercontent.com/cran/fairml/{_FAIRML_COMMIT}/data/{_SURVEY}.rda",
    ),
    Source(
        "nlsy79",
        "raw",
        "nlsy79_raw.csv",
        "csv",
        12686,
        None,
        None,
        None,
        f"{_BLS}; free account, not redistributed",
        "https://www.nlsinfo.org/investigator",
        optional=True,
    ),
)


def sources(dataset: str | None = None) -> tuple[Source, ...]:
    """The files of one data set, or of all; a data set that is made or comes with a library has none."""
    return tuple(source for source in SOURCES if dataset in (None, source.dataset))


def parts(dataset: str) -> dict[str, tuple[Source, ...]]:
    """part: its alternatives"""
    found: dict[str, tuple[Source, ...]] = {}
    for source in sources(dataset):
        found[source.part] = (*found.get(source.part, ()), source)
    return found
