//! Why a function is not ready, and what OpenCL's numbers mean.

use baltra_opencl::*;
use baltra_session::client::{ConnectError, Lost};

/// A function could not be made ready on a device.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StartError {
    /// The node's doing: another node may do.
    #[error("{0}")]
    Node(String),
    /// The function's own fault: it would be the same everywhere.
    #[error("{0}")]
    Function(String),
}

impl From<Lost> for StartError {
    fn from(lost: Lost) -> StartError {
        StartError::Node(format!("the session was lost: {}", text_of(lost.0)))
    }
}

impl From<ConnectError> for StartError {
    fn from(error: ConnectError) -> StartError {
        let source = std::error::Error::source(&error).map(|s| format!(": {s}"));
        StartError::Node(format!("{error}{}", source.unwrap_or_default()))
    }
}

/// An OpenCL error as people know it.
pub fn text_of(code: i32) -> String {
    let name = match code {
        CL_DEVICE_NOT_FOUND => "CL_DEVICE_NOT_FOUND",
        CL_DEVICE_NOT_AVAILABLE => "CL_DEVICE_NOT_AVAILABLE",
        CL_COMPILER_NOT_AVAILABLE => "CL_COMPILER_NOT_AVAILABLE",
        CL_MEM_OBJECT_ALLOCATION_FAILURE => "CL_MEM_OBJECT_ALLOCATION_FAILURE",
        CL_OUT_OF_RESOURCES => "CL_OUT_OF_RESOURCES",
        CL_OUT_OF_HOST_MEMORY => "CL_OUT_OF_HOST_MEMORY",
        CL_BUILD_PROGRAM_FAILURE => "CL_BUILD_PROGRAM_FAILURE",
        CL_INVALID_VALUE => "CL_INVALID_VALUE",
        CL_INVALID_MEM_OBJECT => "CL_INVALID_MEM_OBJECT",
        CL_INVALID_BINARY => "CL_INVALID_BINARY",
        CL_INVALID_BUILD_OPTIONS => "CL_INVALID_BUILD_OPTIONS",
        CL_INVALID_PROGRAM_EXECUTABLE => "CL_INVALID_PROGRAM_EXECUTABLE",
        CL_INVALID_KERNEL_NAME => "CL_INVALID_KERNEL_NAME",
        CL_INVALID_ARG_INDEX => "CL_INVALID_ARG_INDEX",
        CL_INVALID_ARG_VALUE => "CL_INVALID_ARG_VALUE",
        CL_INVALID_ARG_SIZE => "CL_INVALID_ARG_SIZE",
        CL_INVALID_KERNEL_ARGS => "CL_INVALID_KERNEL_ARGS",
        CL_INVALID_WORK_DIMENSION => "CL_INVALID_WORK_DIMENSION",
        CL_INVALID_WORK_GROUP_SIZE => "CL_INVALID_WORK_GROUP_SIZE",
        CL_INVALID_WORK_ITEM_SIZE => "CL_INVALID_WORK_ITEM_SIZE",
        CL_INVALID_BUFFER_SIZE => "CL_INVALID_BUFFER_SIZE",
        CL_INVALID_GLOBAL_WORK_SIZE => "CL_INVALID_GLOBAL_WORK_SIZE",
        CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST => {
            "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"
        }
        _ => return format!("OpenCL error {code}"),
    };
    format!("{name} ({code})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_errors_are_named_where_they_have_a_name() {
        assert_eq!(text_of(-54), "CL_INVALID_WORK_GROUP_SIZE (-54)");
        assert_eq!(text_of(-9999), "OpenCL error -9999");
    }
}
