"""Reports of runs: one self-contained HTML page, figures in the style of the paper, certificates in words."""

from bisaddle.report.figures import figures as figures
from bisaddle.report.page import html as html
from bisaddle.report.sentences import certificate_sentence as certificate_sentence
