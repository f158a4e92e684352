"""How many small bugs in core/ and engine/ the tests notice: `make mutation`, docs/mutation.md."""
