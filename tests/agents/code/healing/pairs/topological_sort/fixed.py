def topological_sort(needs: dict[str, list[str]]) -> list[str]:
    order: list[str] = []
    seen: set[str] = set()
    open_names: set[str] = set()

    def visit(name: str) -> None:
        if name in open_names:
            raise ValueError(f"{name} needs itself")
        if name in seen:
            return
        seen.add(name)
        open_names.add(name)
        for needed in sorted(needs.get(name, [])):
            visit(needed)
        open_names.remove(name)
        order.append(name)

    for name in sorted(needs):
        visit(name)
    return order
