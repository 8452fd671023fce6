"""A hollow program: the same names, and every function raises.

Tests that pass on it test nothing. In Python it is made from the syntax tree; for node the
runner inside replaces what a program exports, told by a comment.
"""

from __future__ import annotations

import ast

from holdfast.agents.code.languages import Language

NODE_MARK = "/* holdfast: hollow */"


def hollowed(code: str, language: Language) -> str | None:
    """The program without its insides; None if it has none that could be taken out."""
    if language.runtime == "node":
        return f"{code.rstrip()}\n{NODE_MARK}\n"
    tree = _Hollow().visit(ast.parse(code))
    if not _Hollow.found(tree):
        return None
    return ast.unparse(ast.fix_missing_locations(tree))


class _Hollow(ast.NodeTransformer):
    @staticmethod
    def found(tree: ast.AST) -> bool:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
        return any(isinstance(node, kinds) for node in ast.walk(tree))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = ast.parse("raise NotImplementedError('hollow')").body
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.body = ast.parse("raise NotImplementedError('hollow')").body
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        node.body = ast.parse(
            "(_ for _ in ()).throw(NotImplementedError('hollow'))", mode="eval"
        ).body
        return node
