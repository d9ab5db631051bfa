"""What could break a certificate, a run or a file, many times over and counted: `make stress`."""
