"""The public names of this package and where each is defined; `holdfast.lazy` reads this file."""

from holdfast.agents.repo.records import Patch as Patch, Repair as Repair, Verdict as Verdict
from holdfast.agents.repo.workflow import repair_repo as repair_repo
