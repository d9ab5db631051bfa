"""All that is asked of f and g.

To read in this order: derivatives (every first and second derivative, traced), kernels (the same as compiled programs
over flat vectors, for what runs on the host), implicit (the lower level and its linear system solved with them, and the
hypergradient), spectra (extreme eigenvalues), depends (whether g is quadratic), validate (whether a point fits), check
(derivatives against finite differences).
"""

from bisaddle.oracle.derivatives import (
    call as call,
    cross_product as cross_product,
    hessian_product as hessian_product,
    lower_gradient as lower_gradient,
    lower_gradient_in_domain as lower_gradient_in_domain,
    lower_value_and_gradient as lower_value_and_gradient,
    lower_x_gradient as lower_x_gradient,
    second_order_products as second_order_products,
    upper_gradients as upper_gradients,
    upper_value as upper_value,
    upper_value_and_gradients as upper_value_and_gradients,
)
