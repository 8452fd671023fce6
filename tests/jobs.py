from holdfast import step, workflow


@step
async def greet(name: str) -> str:
    return f"hello {name}"


@workflow
async def hello(name: str = "world") -> str:
    return await greet(name)


@workflow(queue="gpu")
async def train(rounds: int = 1) -> int:
    return rounds
