def topological_sort(needs: dict[str, list[str]]) -> list[str]:
    order: list[str] = []
    seen: set[str] = set()

    def visit(name: str) -> None:
        if name in seen:
            return
        seen.add(name)
        for needed in sorted(needs.get(name, [])):
            visit(needed)
        order.append(name)

    for name in sorted(needs):
        visit(name)
    return order
