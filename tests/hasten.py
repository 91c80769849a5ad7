"""Triton's interpreter, three times as fast and with the same answers.

What it spends on a small tile it spends on types: for each operation it looks at shapes, makes
names of them and patches the language. Here such answers are kept. All that is replaced is private
to Triton, so a function is replaced only where its source is the one that was read (`READ`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import inspect

READ = {
    "_get_np_dtype": "8f20d41e3207",
    "_patch_attr": "e0c1b7d65a24",
    "_validate_np_data_size": "5d719f1e7c0d",
    "InterpreterBuilder.cast_impl": "b221bbb79664",
    "TensorHandle.__post_init__": "f81df5fe7b50",
    "binary_op_type_checking_impl": "503ea09edfd5",
    "broadcast_impl_value": "9b7949138c0d",
    "builtin": "f5841ebc1313",
    "block_type.__init__": "403f4b016ec5",
    "cast": "193ece285f97",
    "check_ptr_type_impl": "ba2714975881",
    "computation_type_impl": "fda5159dddb0",
    "integer_promote_impl": "7321a1ab440a",
    "scalar_constant": "ee364f1e1738",
    "tensor.__init__": "d9b043b5c989",
}
"""Functions of Triton 3.7, and how the hash of the source of each begins."""

_replaced: list[tuple[object, str, object, object]] = []
"""Owner, name, what Triton ships, and ours."""


def as_read(*functions) -> bool:
    """Whether functions are those that their replacements were written for."""

    def digest(function) -> str:
        return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()[:12]

    names = [function.__qualname__.removeprefix("TritonSemantic.") for function in functions]
    return all(READ[name] == digest(each) for name, each in zip(names, functions))


def replace(owner: object, name: str, ours: object) -> None:
    _replaced.append((owner, name, getattr(owner, name), ours))
    setattr(owner, name, ours)


@contextlib.contextmanager
def as_shipped():
    """The interpreter as Triton ships it."""
    for owner, name, shipped, _ in reversed(_replaced):
        setattr(owner, name, shipped)
    yield
    for owner, name, _, ours in _replaced:
        setattr(owner, name, ours)


def hasten() -> None:
    """Let the interpreter keep what it would find again for each operation."""
    from triton.language import core
    from triton.language.semantic import TritonSemantic as Semantic
    from triton.runtime import interpreter

    if not hasattr(interpreter, "_patch_lang") or not hasattr(interpreter, "_LangPatchScope"):
        return
    patch_once(interpreter)
    leave_out_what_nobody_sees(interpreter)
    if as_read(interpreter._patch_attr, core.builtin):
        call_directly(interpreter, core)
    if as_read(interpreter._get_np_dtype):
        keep_numpy_types(interpreter)
    if as_read(interpreter._validate_np_data_size, interpreter.TensorHandle.__post_init__):
        make_handles(interpreter, core)
    if as_read(core.tensor.__init__, core.block_type.__init__):
        keep_shapes(core)
        if as_read(
            Semantic.binary_op_type_checking_impl,
            Semantic.broadcast_impl_value,
            Semantic.check_ptr_type_impl,
            Semantic.computation_type_impl,
            Semantic.integer_promote_impl,
            Semantic.scalar_constant,
        ):
            convert_what_differs(Semantic, core)
        if as_read(Semantic.cast, interpreter.InterpreterBuilder.cast_impl):
            cast_directly(Semantic)


def patch_once(interpreter) -> None:
    """Replace the functions of the language once in a launch, not for each device function, by
    what the first launch has found that there is to replace."""
    patch, language = interpreter._patch_lang, interpreter.tl
    replaced: set[object] = set()
    found: dict[frozenset[object], list[tuple[object, str, object]]] = {}

    class Scope(interpreter._LangPatchScope):
        """What a launch has replaced, until it ends."""

        def restore(self):
            super().restore()
            replaced.clear()

    @functools.cache
    def seen_by(function) -> frozenset[object]:
        modules = filter(inspect.ismodule, function.__globals__.values())
        return frozenset(modules) & {language, language.core}

    def patch_lang(function):
        seen = seen_by(function)
        scope = Scope()
        if replaced and seen <= replaced:
            return scope
        if seen not in found or replaced:
            changes = patch(function)._changes
            if not replaced:
                found[seen] = [(obj, name, vars(obj)[name]) for obj, name, _ in changes]
            scope._changes = changes
        else:
            for change in found[seen]:
                scope.set_attr(*change)
        replaced.update(seen)
        return scope

    replace(interpreter, "_patch_lang", patch_lang)


def leave_out_what_nobody_sees(interpreter) -> None:
    """Each sum of integers is computed in 64 bits too, for an assertion that is made with `debug`
    alone."""
    builder = interpreter.interpreter_builder
    if not builder.options.debug:
        replace(builder, "options", dataclasses.replace(builder.options, sanitize_overflow=False))


def keep_numpy_types(interpreter) -> None:
    """NumPy's type by the name of Triton's; a dictionary was made to look it up."""
    find, language, found = interpreter._get_np_dtype, interpreter.tl, {}

    def np_dtype(triton_dtype):
        if isinstance(triton_dtype, language.block_type):
            triton_dtype = triton_dtype.element_ty
        name = triton_dtype.name
        if name not in found:
            found[name] = find(triton_dtype)
        return found[name]

    replace(interpreter, "_get_np_dtype", np_dtype)


def make_handles(interpreter, core) -> None:
    """A value, its type and its attributes, with the check of its size but without the functions
    around it."""
    fits, plain = interpreter._validate_np_data_size, core.dtype

    def init_handle(self, data, dtype, attr=None):
        self.data = data
        self.dtype = dtype
        self.attr = {} if attr is None else attr
        if type(dtype) is not plain or 8 * data.itemsize > dtype.primitive_bitwidth:
            self.__post_init__()

    def validate(array, dtype):
        if type(dtype) is plain and 8 * array.itemsize <= dtype.primitive_bitwidth:
            return True
        return fits(array, dtype)

    replace(interpreter.TensorHandle, "__init__", init_handle)
    replace(interpreter, "_validate_np_data_size", validate)


def cast_directly(semantic) -> None:
    """Between numbers whose types are known, the one conversion that a cast comes down to."""
    cast = semantic.cast
    whole = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    known = whole | {"fp16", "bf16", "fp32", "fp64"}
    short = ("fp16", "bf16")

    @functools.cache
    def is_direct(source: str, target: str) -> bool:
        """What is short becomes float32 before it becomes anything else."""
        converted = {source, target} <= known and source != target
        return converted and (source not in short or target == "fp32")

    def cast_once(self, input, dst_ty, fp_downcast_rounding=None):
        type, target = input.type, dst_ty.scalar
        if fp_downcast_rounding is not None or not is_direct(type.scalar.name, target.name):
            return cast(self, input, dst_ty, fp_downcast_rounding)
        handle = self.builder.cast_impl(input.handle, target)
        return self.tensor(handle, type.with_element_ty(target) if type.is_block() else dst_ty)

    replace(semantic, "cast", cast_once)


def call_directly(interpreter, core) -> None:
    """A function of the language without the two around it that hand it the semantic."""
    marked = core.builtin(lambda: None).__code__

    def patch_attr(obj, name, member, builder, scope):
        while getattr(member, "__code__", None) is marked:
            member = member.__wrapped__

        def new_member(*args, _semantic=None, **kwargs):
            return member(*args, **kwargs, _semantic=interpreter.interpreter_semantic)

        scope.set_attr(obj, name, new_member)

    replace(interpreter, "_patch_attr", patch_attr)


def keep_shapes(core) -> None:
    """Shapes as constants, and types of blocks, are made once for each shape."""
    make_block, tuple_of = core.block_type.__init__, {}

    @functools.cache
    def constants(*sizes: int):
        shape = core.tuple([core.constexpr(size) for size in sizes])
        numel = 1
        for size in sizes:
            numel *= size
        return shape, core.constexpr(numel)

    def init_block(self, element_ty, shape):
        key = (element_ty.name, tuple(shape.values if type(shape) is core.tuple else shape))
        try:
            kept = tuple_of.get(key)
        except TypeError:
            kept = None
        if kept is None:
            make_block(self, element_ty, shape)
            # the same shape is one object, whatever the element is
            self.shape = tuple_of.setdefault(tuple(self.shape.values), self.shape)
            tuple_of[key] = (self.shape, self.numel, self.name)
        else:
            self.element_ty = element_ty
            self.shape, self.numel, self.name = kept

    def init_tensor(self, handle, type):
        self.handle = handle
        self.type = type
        self.dtype = type.scalar
        self.shape, self.numel = constants(*type.shape.values) if type.is_block() else constants()

    replace(core.block_type, "__init__", init_block)
    replace(core.tensor, "__init__", init_tensor)


def convert_what_differs(semantic, core) -> None:
    """Operands that agree need neither a conversion nor a new shape; a number beside a tensor
    becomes a constant of its type at once."""
    convert, broadcast = semantic.binary_op_type_checking_impl, semantic.broadcast_impl_value
    integers = {
        each.name: (each.get_int_min_value(), each.get_int_max_value())
        for each in (core.int32, core.uint32, core.int64, core.uint64)
    }
    floats = {"fp32", "fp64"}
    constants: dict[tuple[float, str], object] = {}

    def constant(self, number, dtype):
        """The number in this type if that is what it becomes beside a tensor of it, else None."""
        kind, name = type(number), dtype.name
        if name in integers:
            least, largest = integers[name]
            fits = kind is int and least <= number <= largest
        else:
            fits = name in floats and (kind is float or kind is int and abs(number) < 2**31)
        if not fits or number != number:
            return None
        if (number, name) not in constants:
            constants[number, name] = self.scalar_constant(number, dtype)
            constants[number, name].handle.data.flags.writeable = False
        return constants[number, name]

    def agree(lhs, rhs, div_or_mod) -> bool:
        name = lhs.dtype.name
        known = name in integers or name in floats or (name in ("fp16", "int1") and not div_or_mod)
        return known and rhs.dtype.name == name

    def binary_op_type_checking_impl(
        self,
        lhs,
        rhs,
        allow_lhs_ptr=False,
        allow_rhs_ptr=False,
        arithmetic_check=True,
        div_or_mod=False,
    ):
        if arithmetic_check:
            one, other = lhs, rhs
            if type(one) is not core.tensor and type(other) is core.tensor:
                one = constant(self, one, other.dtype)
            elif type(other) is not core.tensor and type(one) is core.tensor:
                other = constant(self, other, one.dtype)
            if type(one) is core.tensor is type(other):
                if agree(one, other, div_or_mod):
                    return broadcast_impl_value(self, one, other)
                kinds = one.dtype.name, other.dtype.name
                if kinds in (("int32", "int64"), ("int64", "int32")):
                    one, other = self.cast(one, core.int64), self.cast(other, core.int64)
                    return broadcast_impl_value(self, one, other)
                if allow_lhs_ptr and type(one.dtype) is core.pointer_type and kinds[1] in integers:
                    return broadcast_impl_value(self, one, other)
        return convert(self, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)

    @functools.cache
    def common(one, other):
        """The shape of two together, and which of them has to become of it; shapes of one rank."""
        shape = [b if a == 1 else a for a, b in zip(one, other)]
        if any(b not in (1, size) for b, size in zip(other, shape)):
            return None
        return shape, list(one) != shape, list(other) != shape

    def broadcast_impl_value(self, lhs, rhs):
        one, other = lhs.type, rhs.type
        if one is other:
            return lhs, rhs
        if not (one.is_block() and other.is_block()):
            return broadcast(self, lhs, rhs)
        if one.shape is other.shape:
            return lhs, rhs
        sizes = tuple(one.shape.values), tuple(other.shape.values)
        together = common(*sizes) if len(sizes[0]) == len(sizes[1]) else None
        if together is None:
            return broadcast(self, lhs, rhs)
        shape, left, right = together
        if left:
            handle = self.builder.create_broadcast(lhs.handle, shape)
            lhs = self.tensor(handle, core.block_type(one.scalar, shape))
        if right:
            handle = self.builder.create_broadcast(rhs.handle, shape)
            rhs = self.tensor(handle, core.block_type(other.scalar, shape))
        return lhs, rhs

    replace(semantic, "binary_op_type_checking_impl", binary_op_type_checking_impl)
    replace(semantic, "broadcast_impl_value", broadcast_impl_value)
