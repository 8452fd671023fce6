"""The public names of this package and where each is defined; `holdfast.lazy` reads this file."""

from holdfast.errors import (
    CommandNotStarted as CommandNotStarted,
    PortClosed as PortClosed,
    SandboxError as SandboxError,
    SandboxFileError as SandboxFileError,
    SandboxGone as SandboxGone,
    SandboxUnavailable as SandboxUnavailable,
    SourceError as SourceError,
)
from holdfast.sandbox.base import Isolation as Isolation, Usage as Usage
from holdfast.sandbox.command import (
    Command as Command,
    CommandInfo as CommandInfo,
    CommandResult as CommandResult,
    Ended as Ended,
    Limit as Limit,
    Output as Output,
)
from holdfast.sandbox.files import FileInfo as FileInfo
from holdfast.sandbox.host import Host as Host, default_host as default_host
from holdfast.sandbox.kept_workspace import Workspace as Workspace, WorkspaceState as WorkspaceState
from holdfast.sandbox.network import AllowedHost as AllowedHost, Network as Network
from holdfast.sandbox.recording import (
    JsonLinesObserver as JsonLinesObserver,
    MemoryObserver as MemoryObserver,
    Observer as Observer,
    StoreObserver as StoreObserver,
)
from holdfast.sandbox.sandbox import Sandbox as Sandbox
from holdfast.sandbox.snapshots import Snapshot as Snapshot
from holdfast.sandbox.streams import Stream as Stream
from holdfast.sandbox.templates import Template as Template, TemplateBuilder as TemplateBuilder
from holdfast.sandbox.terminal import Terminal as Terminal
from holdfast.sandbox.usage import UsageSample as UsageSample
from holdfast.sandbox.watch import Change as Change, Watch as Watch
