"""The models that can be used here."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from holdfast.gateway.model_list import list_models
from holdfast.server.dependencies import TheGateway
from holdfast.server.replies import Json
from holdfast.server.schemas import ERRORS, ModelList

router = APIRouter(tags=["models"], responses=ERRORS)


class ModelQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    all: bool = Field(default=False, description="also those that can't be used, and why")


@router.get("/api/models", response_model=ModelList)
async def models(gateway: TheGateway, query: Annotated[ModelQuery, Query()]) -> Response:
    """The models usable here, as far as they are known offline."""
    found = await asyncio.to_thread(lambda: list_models(gateway, look=True))
    shown = [asdict(model) for model in found if query.all or model.why_not is None]
    return Json({"models": shown})
