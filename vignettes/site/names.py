"""Give methods the docstrings that they inherit, and every parameter its own type and default."""

from typing import Any

from griffe import Attribute, Class, DocstringSectionKind, Extension, Function, Module


class EachByItself(Extension):
    """griffe takes type and default of ``a, b`` from the signature of the first."""

    def on_package(self, *, pkg: Module, **kwargs: Any) -> None:
        """Look at everything in the package."""
        self.mend(pkg)

    def mend(self, parent: Module | Class) -> None:
        """Mend the docstrings of all members."""
        for name, member in parent.members.items():
            if isinstance(parent, Class) and isinstance(member, Attribute | Function):
                bases = parent.mro() if member.docstring is None else []
                known = (base.members[name].docstring for base in bases if name in base.members)
                member.docstring = member.docstring or next(filter(None, known), None)
            if isinstance(member, Class | Function) and member.docstring:
                for section in member.docstring.parsed:
                    if section.kind is DocstringSectionKind.parameters:
                        self.separate(member, section.value)
            if isinstance(member, Module | Class):
                self.mend(member)

    def separate(self, member: Class | Function, items: list) -> None:
        """Take what was borrowed from another parameter of the signature from its own place."""
        named = {each.name: each for each in member.parameters}
        borrowed = [each.annotation for each in member.parameters]
        for item in items:
            own = named.get(item.name)
            if any(item.annotation is annotation for annotation in borrowed):
                item.annotation = own.annotation if own else None
            item.value = own.default if own else None
