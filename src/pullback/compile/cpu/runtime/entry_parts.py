"""The text of the functions that the native entry calls: checks of arguments, and how results are made.

`$NAMES` are numbers that `render_entry` fills in; a record is words about one array.
"""

from __future__ import annotations

_CHECKS_AND_RESULTS = """
; whether an array is what a record wants, apart from its data
define internal i1 @fits(ptr %record, ptr %array) {
  %type = call ptr @field(ptr %array, i64 $TYPE)
  %is.array = icmp eq ptr %type, @pb_array_type
  br i1 %is.array, label %kind, label %no
kind:
  %rank.p = getelementptr i8, ptr %array, i64 $RANK
  %rank = load i32, ptr %rank.p
  %rank.wide = sext i32 %rank to i64
  %rank.wanted = call i64 @word(ptr %record, i64 $OF.RANK)
  %rank.same = icmp eq i64 %rank.wide, %rank.wanted
  %dtype = call ptr @field(ptr %array, i64 $DESCR)
  %dtype.wanted = call ptr @pointer(ptr %record, i64 $OF.DTYPE)
  %dtype.same = icmp eq ptr %dtype, %dtype.wanted
  %flags.p = getelementptr i8, ptr %array, i64 $FLAGS
  %flags = load i32, ptr %flags.p
  %flags.wide = zext i32 %flags to i64
  %flags.wanted = call i64 @word(ptr %record, i64 $OF.FLAGS)
  %flags.there = and i64 %flags.wide, %flags.wanted
  %flags.all = icmp eq i64 %flags.there, %flags.wanted
  %both = and i1 %rank.same, %dtype.same
  %every = and i1 %both, %flags.all
  br i1 %every, label %shape, label %no
shape:
  %dims = call ptr @field(ptr %array, i64 $SHAPE)
  %wanted = call ptr @pointer(ptr %record, i64 $OF.DIMS)
  br label %axis
axis:
  %a = phi i64 [ 0, %shape ], [ %a.next, %size ]
  %a.done = icmp eq i64 %a, %rank.wanted
  br i1 %a.done, label %yes, label %size
size:
  %size.p = getelementptr i64, ptr %dims, i64 %a
  %size.found = load i64, ptr %size.p
  %want.p = getelementptr i64, ptr %wanted, i64 %a
  %size.wanted = load i64, ptr %want.p
  %a.next = add i64 %a, 1
  %size.same = icmp eq i64 %size.found, %size.wanted
  br i1 %size.same, label %axis, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; an array's data into the table of pointers
define internal void @place(ptr %record, ptr %array, ptr %table) {
  %data = call ptr @field(ptr %array, i64 $DATA)
  %place = call i64 @word(ptr %record, i64 $OF.PLACE)
  %place.p = getelementptr ptr, ptr %table, i64 %place
  store ptr %data, ptr %place.p
  ret void
}

; whether inputs are marked as a call wants them: without a pattern, none is tracked
define internal i1 @agree(ptr %marks, ptr %pattern, i64 %count) {
entry:
  %free = icmp eq ptr %pattern, null
  %from = select i1 %free, ptr %marks, ptr %pattern
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %look ]
  %i.done = icmp eq i64 %i, %count
  br i1 %i.done, label %yes, label %look
look:
  %mark.p = getelementptr i8, ptr %marks, i64 %i
  %mark = load i8, ptr %mark.p
  %wanted.p = getelementptr i8, ptr %from, i64 %i
  %wanted = load i8, ptr %wanted.p
  %untracked = icmp ne i8 %mark, 2
  %same = icmp eq i8 %mark, %wanted
  %fine = select i1 %free, i1 %untracked, i1 %same
  %i.next = add i64 %i, 1
  br i1 %fine, label %next, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; whether no array that is written overlaps another: one's end is not after the other's start
define internal i1 @apart(ptr %records, ptr %table, ptr %order, i64 %written, i64 %ordered) {
entry:
  br label %one
one:
  %i = phi i64 [ 0, %entry ], [ %i.next, %other ]
  %i.done = icmp eq i64 %i, %written
  br i1 %i.done, label %yes, label %with
with:
  %first = call ptr @start(ptr %records, ptr %table, ptr %order, i64 %i)
  %first.end = call ptr @end(ptr %records, ptr %first, ptr %order, i64 %i)
  %i.next = add i64 %i, 1
  br label %other
other:
  %j = phi i64 [ %i.next, %with ], [ %j.next, %test ]
  %j.done = icmp eq i64 %j, %ordered
  br i1 %j.done, label %one, label %test
test:
  %second = call ptr @start(ptr %records, ptr %table, ptr %order, i64 %j)
  %second.end = call ptr @end(ptr %records, ptr %second, ptr %order, i64 %j)
  %below = icmp ule ptr %first.end, %second
  %above = icmp ule ptr %second.end, %first
  %either = or i1 %below, %above
  %j.next = add i64 %j, 1
  br i1 %either, label %other, label %no
yes:
  ret i1 true
no:
  ret i1 false
}
define internal ptr @ordered(ptr %records, ptr %order, i64 %i) alwaysinline {
  %number.p = getelementptr i64, ptr %order, i64 %i
  %number = load i64, ptr %number.p
  %record = getelementptr [$WORDS x i64], ptr %records, i64 %number
  ret ptr %record
}
define internal ptr @start(ptr %records, ptr %table, ptr %order, i64 %i) alwaysinline {
  %record = call ptr @ordered(ptr %records, ptr %order, i64 %i)
  %place = call i64 @word(ptr %record, i64 $OF.PLACE)
  %data.p = getelementptr ptr, ptr %table, i64 %place
  %data = load ptr, ptr %data.p
  ret ptr %data
}
define internal ptr @end(ptr %records, ptr %start, ptr %order, i64 %i) alwaysinline {
  %record = call ptr @ordered(ptr %records, ptr %order, i64 %i)
  %nbytes = call i64 @word(ptr %record, i64 $OF.NBYTES)
  %end = getelementptr i8, ptr %start, i64 %nbytes
  ret ptr %end
}

; a new array as a record describes it, its data in the table; null if there is no memory
define internal ptr @make(ptr %record, ptr %table) {
  %dtype = call ptr @pointer(ptr %record, i64 $OF.DTYPE)
  call void @pb_incref(ptr %dtype)
  %rank.wide = call i64 @word(ptr %record, i64 $OF.RANK)
  %rank = trunc i64 %rank.wide to i32
  %dims = call ptr @pointer(ptr %record, i64 $OF.DIMS)
  %array = call ptr @pb_new_array(ptr @pb_array_type, ptr %dtype, i32 %rank, ptr %dims, ptr null, ptr null, i32 0,
    ptr null)
  %failed = icmp eq ptr %array, null
  br i1 %failed, label %done, label %fine
fine:
  call void @place(ptr %record, ptr %array, ptr %table)
  br label %done
done:
  ret ptr %array
}

; the first results in a list as tensors without a node; whether there was memory
define internal i1 @wrap(ptr %records, ptr %items, i64 %count) {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %fill ]
  %i.done = icmp eq i64 %i, %count
  br i1 %i.done, label %yes, label %new
new:
  %tensor = call ptr @pb_new_object(ptr @pb_tensor_type, i64 0)
  %failed = icmp eq ptr %tensor, null
  br i1 %failed, label %no, label %fill
fill:
  %item.p = getelementptr ptr, ptr %items, i64 %i
  %array = load ptr, ptr %item.p
  %value.p = getelementptr i8, ptr %tensor, i64 $VALUE
  store ptr %array, ptr %value.p
  %record = getelementptr [$WORDS x i64], ptr %records, i64 %i
  %spec = call ptr @pointer(ptr %record, i64 $OF.SPEC)
  call void @pb_incref(ptr %spec)
  %spec.p = getelementptr i8, ptr %tensor, i64 $SPEC
  store ptr %spec, ptr %spec.p
  call void @pb_incref(ptr @pb_none)
  %node.p = getelementptr i8, ptr %tensor, i64 $NODE
  store ptr @pb_none, ptr %node.p
  store ptr %tensor, ptr %item.p
  %i.next = add i64 %i, 1
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}
"""

# Each of some arrays, one after the other.
_FOR_EACH = """
define internal void @NAME(ptr %arrays, i64 %count) {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %after, %one ]
  %done = icmp eq i64 %i, %count
  br i1 %done, label %end, label %one
one:
  %array = call ptr @pointer(ptr %arrays, i64 %i)
  call void @FUNCTION(ptr %array)
  %after = add i64 %i, 1
  br label %next
end:
  ret void
}
"""


def _render_for_each(name: str, function: str) -> str:
    return _FOR_EACH.replace("NAME", name).replace("FUNCTION", function)


# while other threads run, a tensor may be pointed at another array, or an optimizer write to one that only it refers to
PARTS = _CHECKS_AND_RESULTS + _render_for_each("hold", "pb_incref") + _render_for_each("release", "pb_decref")
