"""Pictures on the wire: data URLs and addresses."""

from __future__ import annotations

from holdfast.gateway.formats.json_fields import WireError
from holdfast.gateway.messages import ImagePart


def image_url(part: ImagePart) -> str:
    """The picture as one URL, as OpenAI's formats want it."""
    if part.data is not None:
        return f"data:{part.media_type or 'image/png'};base64,{part.data}"
    return part.url or ""


def image_from_url(url: str, detail: str | None = None) -> ImagePart:
    """A picture from a data URL or an address."""
    if not url.startswith("data:"):
        return ImagePart(url=url, detail=detail)
    head, comma, data = url[5:].partition(",")
    if not comma or not head.endswith(";base64"):
        raise WireError("an image's data URL should be data:<media type>;base64,<data>")
    return ImagePart(data=data, media_type=head.removesuffix(";base64"), detail=detail)
