"""What holds for all tests."""

from hypothesis import HealthCheck, settings

# Properties say nothing of time: on a busy machine an example may take as long as it likes.
settings.register_profile("millrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("millrace")
