"""Reports of runs: one self-contained HTML page, figures in the style of the paper, certificates in words."""

from bisaddle.report.sentences import certificate_sentence as certificate_sentence
