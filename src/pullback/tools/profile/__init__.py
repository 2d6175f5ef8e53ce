"""The time profiler: `pb.profile`."""

from .profile_diff import ProfileDiff
from .time_profile import Profile, profile

__all__ = ["Profile", "ProfileDiff", "profile"]
