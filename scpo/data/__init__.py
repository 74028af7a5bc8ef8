"""From raw preference data to a table of comparisons."""
