"""The text of the checks before rows are updated: which tensors have plain arrays, and which arrays nothing else sees.

A value is overwritten only if its array owns its memory and the tensor is all that refers to it: no other variable or
view (the reference count), no saved value of a checkpoint (a weak reference). Python's lock is held from the check to
the last write, so nothing can come to refer to it meanwhile. `$NAMES` are numbers that `render_walk` fills in.
"""

from __future__ import annotations

CHECKS = """
define internal ptr @plain_array(ptr %plan, ptr %tensor, ptr %row, i32 %flags) {
  %type = call ptr @field(ptr %tensor, i64 $TYPE)
  %tensors = call ptr @pointer(ptr %plan, i64 $H_tensor_type)
  %is_tensor = icmp eq ptr %type, %tensors
  br i1 %is_tensor, label %spec, label %no
spec:
  %own = call ptr @field(ptr %tensor, i64 $S_spec)
  %wanted = call ptr @pointer(ptr %row, i64 0)
  %fits = icmp eq ptr %own, %wanted
  br i1 %fits, label %value, label %no
value:
  %array = call ptr @field(ptr %tensor, i64 $S_value)
  %missing = icmp eq ptr %array, null
  br i1 %missing, label %no, label %there
there:
  %kind = call ptr @field(ptr %array, i64 $TYPE)
  %arrays = call ptr @pointer(ptr %plan, i64 $H_array_type)
  %is_array = icmp eq ptr %kind, %arrays
  br i1 %is_array, label %layout, label %no
layout:
  %descr = call ptr @field(ptr %array, i64 $DESCR)
  %dtype = call ptr @pointer(ptr %plan, i64 $H_dtype)
  %same = icmp eq ptr %descr, %dtype
  %place = getelementptr i8, ptr %array, i64 $FLAGS
  %all = load i32, ptr %place
  %some = and i32 %all, %flags
  %set = icmp eq i32 %some, %flags
  %good = and i1 %same, %set
  br i1 %good, label %yes, label %no
yes:
  ret ptr %array
no:
  ret ptr null
}

define internal ptr @value_data(ptr %plan, ptr %item, ptr %row) {
  %type = call ptr @field(ptr %item, i64 $TYPE)
  %arrays = call ptr @pointer(ptr %plan, i64 $H_array_type)
  %is_array = icmp eq ptr %type, %arrays
  br i1 %is_array, label %given, label %tensor
given:
  %data = call ptr @field(ptr %item, i64 $DATA)
  ret ptr %data
tensor:
  %array = call ptr @plain_array(ptr %plan, ptr %item, ptr %row, i32 $WRITE)
  %bad = icmp eq ptr %array, null
  br i1 %bad, label %no, label %alone
alone:
  %references = load i32, ptr %array
  %one = icmp eq i32 %references, 1
  %base = call ptr @field(ptr %array, i64 $BASE)
  %based = icmp eq ptr %base, null
  %weak = call ptr @field(ptr %array, i64 $WEAK)
  %unseen = icmp eq ptr %weak, null
  %two = and i1 %one, %based
  %three = and i1 %two, %unseen
  br i1 %three, label %yes, label %no
yes:
  %own = call ptr @field(ptr %array, i64 $DATA)
  ret ptr %own
no:
  ret ptr null
}

define internal ptr @gradient_data(ptr %plan, ptr %item, ptr %row) {
  %type = call ptr @field(ptr %item, i64 $TYPE)
  %arrays = call ptr @pointer(ptr %plan, i64 $H_array_type)
  %is_array = icmp eq ptr %type, %arrays
  br i1 %is_array, label %given, label %other
given:
  %data = call ptr @field(ptr %item, i64 $DATA)
  ret ptr %data
other:
  %tensors = call ptr @pointer(ptr %plan, i64 $H_tensor_type)
  %is_tensor = icmp eq ptr %type, %tensors
  br i1 %is_tensor, label %tensor, label %no
tensor:
  %gradient = call ptr @field(ptr %item, i64 $S__grad)
  %missing = icmp eq ptr %gradient, null
  br i1 %missing, label %no, label %there
there:
  %array = call ptr @plain_array(ptr %plan, ptr %gradient, ptr %row, i32 $READ)
  %bad = icmp eq ptr %array, null
  br i1 %bad, label %no, label %yes
yes:
  %own = call ptr @field(ptr %array, i64 $DATA)
  ret ptr %own
no:
  ret ptr null
}

define internal i1 @check(ptr %plan, ptr %values, ptr %gradients) {
entry:
  %rows = call i64 @word(ptr %plan, i64 $H_rows)
  %words = call i64 @word(ptr %plan, i64 $H_row_words)
  %records = call ptr @pointer(ptr %plan, i64 $H_row_records)
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %after, %good ]
  %done = icmp eq i64 %i, %rows
  br i1 %done, label %yes, label %value
value:
  %at = mul i64 %i, %words
  %row = getelementptr i64, ptr %records, i64 %at
  %v = call ptr @item(ptr %values, i64 %i)
  %data = call ptr @value_data(ptr %plan, ptr %v, ptr %row)
  %bad = icmp eq ptr %data, null
  br i1 %bad, label %no_value, label %gradient
gradient:
  call void @point(ptr %row, i64 $START, ptr %data)
  %g = call ptr @item(ptr %gradients, i64 %i)
  %slope = call ptr @gradient_data(ptr %plan, ptr %g, ptr %row)
  %worse = icmp eq ptr %slope, null
  br i1 %worse, label %no_gradient, label %good
good:
  call void @point(ptr %row, i64 $SECOND, ptr %slope)
  %after = add i64 %i, 1
  br label %next
yes:
  ret i1 true
no_value:
  call void @set(ptr %plan, i64 $H_failed_row, i64 %i)
  call void @set(ptr %plan, i64 $H_failed_gradient, i64 0)
  ret i1 false
no_gradient:
  call void @set(ptr %plan, i64 $H_failed_row, i64 %i)
  call void @set(ptr %plan, i64 $H_failed_gradient, i64 1)
  ret i1 false
}
"""
