"""From a table of predictions to numbers with intervals, tables and pages."""
