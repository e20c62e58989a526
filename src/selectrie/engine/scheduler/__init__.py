"""Who is in the next batch: jobs, prefill, preemption and the model thread."""
