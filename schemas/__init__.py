"""What crosses a border: requests, results, records and the error tree. Imports nothing else of Rollbox."""
