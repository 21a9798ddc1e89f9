//! Pages of a list, as the API answers them.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Page of a list.
pub trait Page: DeserializeOwned {
    /// Returns the number of events that the list leaves out because the server cannot read them.
    fn damaged_events(&self) -> u64;
}

/// A list of no events.
impl<T: DeserializeOwned> Page for Vec<T> {
    fn damaged_events(&self) -> u64 {
        0
    }
}

impl Page for Value {
    fn damaged_events(&self) -> u64 {
        self.get("damaged_events").and_then(Value::as_u64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::MarkersReply;

    fn damaged<P: Page>(page: &str) -> u64 {
        serde_json::from_str::<P>(page).expect("a page").damaged_events()
    }

    #[test]
    fn a_page_says_how_many_events_are_left_out() {
        let (whole, partial) = (r#"{"markers":[]}"#, r#"{"markers":[],"damaged_events":2}"#);
        assert_eq!((damaged::<Value>(whole), damaged::<Value>(partial)), (0, 2));
        assert_eq!((damaged::<MarkersReply>(whole), damaged::<MarkersReply>(partial)), (0, 2));
        assert_eq!(damaged::<Vec<Value>>("[{\"damaged_events\":2}]"), 0);
    }
}
