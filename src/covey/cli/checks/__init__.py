"""What `covey doctor` looks at, a file for each thing that can be ill. Each is imported when it is looked at."""
