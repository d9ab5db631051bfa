"""All that is asked of f and g.

To read in this order: derivatives (every first and second derivative, traced), kernels (the same as compiled programs
over flat vectors, for what runs on the host), implicit (the lower level and its linear system solved with them),
spectra (extreme eigenvalues), depends (whether g is quadratic), hypergradient, check (derivatives against finite
differences).
"""

from bisaddle.oracle.derivatives import call as call
from bisaddle.oracle.derivatives import cross_product as cross_product
from bisaddle.oracle.derivatives import hessian_product as hessian_product
from bisaddle.oracle.derivatives import lower_gradient as lower_gradient
from bisaddle.oracle.derivatives import lower_x_gradient as lower_x_gradient
from bisaddle.oracle.derivatives import second_order_products as second_order_products
from bisaddle.oracle.derivatives import upper_gradients as upper_gradients
from bisaddle.oracle.derivatives import upper_value as upper_value
from bisaddle.oracle.derivatives import upper_value_and_gradients as upper_value_and_gradients
