"""What needs an operator: stalled groups, lost workers, error spikes."""
