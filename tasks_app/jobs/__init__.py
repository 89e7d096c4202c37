"""Jobs as the store sees them: queues, records, requeue."""
