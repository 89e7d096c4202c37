"""Alerts: stalled groups, lost workers, error spikes."""
