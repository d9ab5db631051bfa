"""Data over the devices of a mesh and the processes of a cluster; JAX's own runtime does the rest.

    mesh = parallel.mesh("tasks")                                  all devices of all processes
    problem, start = parallel.shard(problem, start, mesh)          or "rows"
    result = bs.solve(problem, start)

Computation follows the data, and no array of the data is ever gathered. See docs/parallel.md and docs/scale.md.
"""

from bisaddle.devices import Order as Order, summed as summed, total as total
from bisaddle.parallel.joining import initialize as initialize
from bisaddle.parallel.keeping import restore as restore, save as save
from bisaddle.parallel.splitting import (
    gather as gather,
    load as load,
    mesh as mesh,
    shard as shard,
    shard_rows as shard_rows,
    shard_tasks as shard_tasks,
)
