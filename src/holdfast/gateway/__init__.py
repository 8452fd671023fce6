"""The gateway: any model by one string, every call on record, never over budget.

Names are loaded when they are first used, so that importing this costs next to nothing.
"""

from holdfast.lazy import lazily

lazily(__name__)
