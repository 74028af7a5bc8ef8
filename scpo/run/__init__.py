"""One run: a resolved config becomes a run folder. The only stateful step is training; it resumes where it was killed."""
