"""A small experiment as a TOML file, with every method."""

FULLY_PROJECTED = """
method = "FullyProjected"
mu = "nu * K^(-1/4)"
gamma = "nu * K^(-1/2)"
tau = 0.7
alpha = "2 / (mu_g + L_g)"
eta = "2 / (mu_g + L_g)"
sigma = "1 / mu"
"""

SMALL = """
title = "small"
figure = "fig1"
steps = 400
every = 10
seeds = [0, 1]

[dataset]
name = "synthetic"
n = 300
d = 6

[problem]
radius = 2.0

[tuning]
nu = [0.1, 1.0, 10.0, 1000.0]

[quick]
steps = 100
seeds = [3]
stride = 2

[sensitivity]
ridge = [0.1, 1.0]
nu_caps = [0.5]

[[methods]]
key = "opf"
label = "OPF"
method = "OneSidedProjectionFree"
mu = "nu * K^(-1/3)"
gamma = "nu * K^(-2/3)"
alpha = "2 / (mu_g + L_g)"
eta = "2 / (mu_g + L_g)"
sigma = "1 / (mu + L_yy)"

[[methods]]
key = "fp"
%s
[[methods]]
key = "morbit"
method = "MORBiT"
neumann = 10
alpha = "K^(-2/5)"
tau = "nu * K^(-3/5)"
sigma = "nu * K^(-3/5)"

[[methods]]
key = "morbit_60"
method = "MORBiT"
neumann = 60
quick = false
alpha = "K^(-2/5)"
tau = "nu * K^(-3/5)"
sigma = "nu * K^(-3/5)"

[[methods]]
key = "adaptive"
method = "Adaptive"
tol = 1e-5
""".replace("%s", FULLY_PROJECTED)
