"""The calculator tool: lexer -> parser -> evaluate -> format_number, with exact numbers and bounded work."""

from .tool import CalculatorConfig, CalculatorTool

__all__ = ["CalculatorConfig", "CalculatorTool"]
