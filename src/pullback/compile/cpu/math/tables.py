"""Table look-ups in registers: sixteen numbers in one wide register, and one instruction picks for all lanes."""

from __future__ import annotations

import zlib

import numpy as np

from ..builder.ir_builder import IRBuilder
from ..builder.vector_types import IRValue, format_number, llvm_type
from .coefficients import numbers
from .double_double import compare_integers, integer_op

_WHOLE = np.dtype(np.int32)


def pick_from_table(k: IRBuilder, table: tuple[float, ...], index: IRValue) -> IRValue:
    """table[index modulo 16] for numbers of float32. The same bits for any number of lanes."""
    if k.lanes == 16 and k.vector_bytes == 64:
        return _pick_by_permute(k, "llvm.x86.avx512.permvar.sf.512", table, index)
    if k.lanes == 8 and k.vector_bytes >= 32:
        low, high = (_pick_by_permute(k, "llvm.x86.avx2.permps", half, index) for half in (table[:8], table[8:]))
        return k.select(compare_integers(k, "ne", integer_op(k, "and", index, 8), 0), high, low)
    return _pick_by_load(k, table, integer_op(k, "and", index, 15))


def _pick_by_permute(k: IRBuilder, instruction: str, table: tuple[float, ...], index: IRValue) -> IRValue:
    entries = ", ".join(f"float {format_number(c, k.dtype)}" for c in table)
    return k.call(instruction, k.dtype, IRValue(f"<{entries}>", k.dtype, k.lanes), index)


def _pick_by_load(k: IRBuilder, table: tuple[float, ...], index: IRValue) -> IRValue:
    """Lane by lane from memory."""
    entries = [format_number(c, k.dtype) for c in table]
    # the same table has the same name, so a module holds it once
    name = f"@table{zlib.crc32(repr(table).encode()):x}"
    k.declared.add(f"{name} = internal constant [16 x float] [{', '.join('float ' + c for c in entries)}]")
    result = "poison"
    for i in range(k.lanes):
        of_lane = index.name
        if k.lanes > 1:
            of_lane = k.assign(f"extractelement {llvm_type(_WHOLE, k.lanes)} {index.name}, i32 {i}")
        found = k.assign(f"load float, ptr {k.assign(f'getelementptr float, ptr {name}, i32 {of_lane}')}")
        if k.lanes == 1:
            return IRValue(found, k.dtype)
        result = k.assign(f"insertelement {llvm_type(k.dtype, k.lanes)} {result}, float {found}, i32 {i}")
    return IRValue(result, k.dtype, k.lanes)


#: tanh a = c0 + c1 r + ... + c6 r^6 with r = a - m: m and then the c of sixteen intervals. They are selected by the
#: last two bits of the exponent of a + 1 and the first two after it, so the first is at 12. The middles m are
#: numbers whose tanh is nearly a float32 too, so that c0 loses nothing.
TANH = (
    numbers("""
        1.2497694492340088 1.7497650384902954 2.249577283859253 2.750335216522217 3.4999313354492188 4.500294208526611
        5.500362873077393 6.499046802520752 7.999046802520752 0.0 0.0 0.0 0.0 0.37504732608795166 0.6251066327095032
        0.8750615119934082
    """),
    numbers("""
        0.8482189774513245 0.9413487911224365 0.9780077338218689 0.9918651580810547 0.9981776475906372
        0.9997533559799194 0.9999666213989258 0.9999954700469971 0.9999997615814209 1.0 1.0 1.0 0.0 0.3583986461162567
        0.5546735525131226 0.7039366364479065
    """),
    numbers("""
        0.28052452206611633 0.11386243999004364 0.0435008704662323 0.016203509643673897 0.0036414042115211487
        0.0004932302399538457 6.675652548437938e-05 9.058493560587522e-06 4.5075046273268526e-07 0.0 0.0 0.0 1.0
        0.871550440788269 0.6923372745513916 0.5044732093811035
    """),
    numbers("""
        -0.2379462718963623 -0.1071842759847641 -0.04254418984055519 -0.016071701422333717 -0.0036347517743706703
        -0.0004931048024445772 -6.675471377093345e-05 -9.009673703985754e-06 -2.1850222253760876e-07 0.0 0.0 0.0
        -1.6037282648539986e-06 -0.3123624920845032 -0.38402116298675537 -0.35511720180511475
    """),
    numbers("""
        0.10833227634429932 0.06294794380664825 0.027108486741781235 0.010539554059505463 0.0024128705263137817
        0.0003283538098912686 4.446927778190002e-05 6.036802460585022e-06 2.995433590058383e-07 0.0 0.0 0.0
        -0.3332580626010895 -0.1785682588815689 -0.017776764929294586 0.08182073384523392
    """),
    numbers("""
        -0.012563155964016914 -0.023525526747107506 -0.012330975383520126 -0.005096514709293842 -0.0011980393901467323
        -0.00016408562078140676 -2.223127376055345e-05 -3.5393250072957017e-06 -7.696160650993988e-07 0.0 0.0 0.0
        -0.0012996498262509704 0.16811466217041016 0.1378660947084427 0.06077904626727104
    """),
    numbers("""
        -0.019642094150185585 0.003510085865855217 0.0039803627878427505 0.0019120717188343406 0.0004878282197751105
        6.786781159462407e-05 9.218559171131346e-06 1.2435596090654144e-06 6.691171705597299e-08 0.0 0.0 0.0
        0.14356255531311035 0.0189349427819252 -0.05446609854698181 -0.05858597159385681
    """),
    numbers("""
        0.01510545052587986 0.0020609800703823566 -0.000723340199328959 -0.0005483597633428872 -0.00015610174159519374
        -2.2294290829449892e-05 -3.0660244192404207e-06 9.759854719959549e-07 3.9114144101404236e-07 0.0 0.0 0.0
        -0.03768911957740784 -0.06908132135868073 -0.024022085592150688 0.012910513207316399
    """),
)
