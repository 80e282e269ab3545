//! Markers, barriers, migration, flush and finish.

use crate::core::event::{Event, Waits};
use crate::core::memory::Memory;
use crate::core::queue::{Access, Queue, Use};
use baltra_opencl::*;
use baltra_wire::Operation;

#[no_mangle]
pub unsafe extern "C" fn clFlush(queue: cl_command_queue) -> cl_int {
    code!(|caller| {
        let queue = caller.get::<Queue>(queue)?;
        queue.channel.flush();
        match queue.here().client.is_lost() {
            Some(code) => Err(code),
            None => Ok(()),
        }
    })
}

#[no_mangle]
pub unsafe extern "C" fn clFinish(queue: cl_command_queue) -> cl_int {
    code!(|caller| caller.get::<Queue>(queue)?.finish())
}

#[no_mangle]
pub unsafe extern "C" fn clEnqueueMarkerWithWaitList(
    queue: cl_command_queue,
    num_events: cl_uint,
    wait_list: *const cl_event,
    event_ret: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        let queue = caller.get::<Queue>(queue)?;
        let waits = caller.waits(&queue.context, num_events, wait_list)?;
        // A marker with a list waits for the list alone, even if all of it is complete by now;
        // one without waits for everything before it.
        if !waits.is_empty() && !queue.in_order() && waits.are_complete() == Ok(true) {
            let now = crate::core::event::monotonic_ns();
            queue.complete(CL_COMMAND_MARKER, event_ret, now);
            return Ok(());
        }
        queue.enqueue(
            CL_COMMAND_MARKER,
            &waits,
            event_ret,
            &[],
            &Operation::Marker,
        )
    })
}

#[no_mangle]
pub unsafe extern "C" fn clEnqueueBarrierWithWaitList(
    queue: cl_command_queue,
    num_events: cl_uint,
    wait_list: *const cl_event,
    event_ret: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        let queue = caller.get::<Queue>(queue)?;
        let waits = caller.waits(&queue.context, num_events, wait_list)?;
        let complete = !waits.is_empty() && waits.are_complete() == Ok(true);
        if complete && !queue.in_order() {
            // Its list is complete: nothing is held back.
            let now = crate::core::event::monotonic_ns();
            queue.complete(CL_COMMAND_BARRIER, event_ret, now);
            return Ok(());
        }
        queue.enqueue(
            CL_COMMAND_BARRIER,
            &waits,
            event_ret,
            &[],
            &Operation::Barrier,
        )
    })
}

/// OpenCL 1.0's marker: complete when everything before it is.
#[no_mangle]
pub unsafe extern "C" fn clEnqueueMarker(queue: cl_command_queue, event: *mut cl_event) -> cl_int {
    code!(|caller| {
        let queue = caller.get::<Queue>(queue)?;
        // CL_INVALID_VALUE if event is a NULL value.
        if event.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        let waits = Waits::default();
        queue.enqueue(CL_COMMAND_MARKER, &waits, event, &[], &Operation::Marker)
    })
}

/// OpenCL 1.0's barrier.
#[no_mangle]
pub unsafe extern "C" fn clEnqueueBarrier(queue: cl_command_queue) -> cl_int {
    code!(|caller| {
        let queue = caller.get::<Queue>(queue)?;
        let waits = Waits::default();
        let nowhere = std::ptr::null_mut();
        queue.enqueue(
            CL_COMMAND_BARRIER,
            &waits,
            nowhere,
            &[],
            &Operation::Barrier,
        )
    })
}

/// OpenCL 1.0's wait: no later command starts before the events are complete.
#[no_mangle]
pub unsafe extern "C" fn clEnqueueWaitForEvents(
    queue: cl_command_queue,
    num_events: cl_uint,
    event_list: *const cl_event,
) -> cl_int {
    code!(|caller| {
        let queue = caller.get::<Queue>(queue)?;
        // CL_INVALID_VALUE if num_events is zero or event_list is NULL.
        if num_events == 0 || event_list.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        let list = caller.list(num_events as usize, event_list, CL_INVALID_VALUE)?;
        let mut waits = Waits::default();
        for &raw in list {
            let event = caller.get::<Event>(raw)?;
            if !std::ptr::eq(&*event.context, &*queue.context) {
                return Err(CL_INVALID_CONTEXT);
            }
            waits.push(event);
        }
        if !queue.in_order() && waits.are_complete() == Ok(true) {
            return Ok(());
        }
        let nowhere = std::ptr::null_mut();
        queue.enqueue(
            CL_COMMAND_BARRIER,
            &waits,
            nowhere,
            &[],
            &Operation::Barrier,
        )
    })
}

#[no_mangle]
pub unsafe extern "C" fn clEnqueueMigrateMemObjects(
    queue: cl_command_queue,
    num_mem_objects: cl_uint,
    mem_objects: *const cl_mem,
    flags: cl_mem_migration_flags,
    num_events: cl_uint,
    wait_list: *const cl_event,
    event_ret: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        let queue = caller.get::<Queue>(queue)?;
        // CL_INVALID_VALUE if num_mem_objects is zero or if mem_objects is NULL.
        if num_mem_objects == 0 || mem_objects.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        let list = caller.list(num_mem_objects as usize, mem_objects, CL_INVALID_VALUE)?;
        let undefined = CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED as u64;
        // CL_INVALID_VALUE if flags is not 0 or is not any of the values described.
        if flags & !(CL_MIGRATE_MEM_OBJECT_HOST as u64 | undefined) != 0 {
            return Err(CL_INVALID_VALUE);
        }
        let access = match flags & undefined {
            0 => Access::Read,
            _ => Access::Write,
        };
        let (mut ids, mut uses) = (Vec::new(), Vec::new());
        for &raw in list {
            let memory = caller.get::<Memory>(raw)?;
            if !std::ptr::eq(&*memory.context, &*queue.context) {
                return Err(CL_INVALID_CONTEXT);
            }
            ids.extend(memory.id_in(queue.member)?.to_le_bytes());
            uses.push(Use { memory, access });
        }
        let waits = caller.waits(&queue.context, num_events, wait_list)?;
        let operation = Operation::Migrate {
            objects: &ids,
            flags,
        };
        let command = CL_COMMAND_MIGRATE_MEM_OBJECTS;
        queue.enqueue(command, &waits, event_ret, &uses, &operation)
    })
}
