from bisaddle.streams.chunks import Chunks as Chunks
from bisaddle.streams.grams import Gram as Gram, gram as gram
from bisaddle.streams.sources import parquet as parquet, rows as rows
