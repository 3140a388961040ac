"""Why an instance has no solution with its vehicles, and which changes would allow one."""
