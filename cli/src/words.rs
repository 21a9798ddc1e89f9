//! Explanations of markers and events for `--help` and the report, from the tables of `docs/EVENTS.md`.

const DOCUMENT: &str = include_str!("../../docs/EVENTS.md");
/// Width of the help in columns.
const WIDTH: usize = 100;

/// Returns the first two cells of each row in the table whose first column is `head`: a term and its meaning.
pub fn table(head: &str) -> Vec<(String, String)> {
    let head = format!("| `{head}` |");
    let rows = DOCUMENT.lines().skip_while(|line| !line.starts_with(&head)).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let cells = |row: &str| {
        let mut cells = row.trim_matches('|').split(" | ").map(|cell| cell.trim().replace('`', ""));
        Some((cells.next()?, cells.next()?))
    };
    rows.filter_map(cells).collect()
}

/// Returns the explanation of confidence.
pub fn confidence() -> String {
    let line = DOCUMENT.lines().find(|line| line.starts_with("`confidence`"));
    line.unwrap_or_default().replace('`', "")
}

/// Returns the end of the help for commands that show markers.
pub fn of_markers() -> String {
    let (types, statuses) = (listed("event_type"), listed("status"));
    format!("Types:\n{types}\nStatuses:\n{statuses}\n{}", wrapped(&confidence(), 0))
}

/// Returns the end of the help for `events`.
pub fn of_events() -> String {
    format!("Kinds:\n{}", listed("kind"))
}

fn listed(head: &str) -> String {
    let rows = table(head);
    let width = rows.iter().map(|(word, _)| word.len()).max().unwrap_or(0) + 4;
    let line = |(word, means): &(String, String)| {
        let means = wrapped(means, width);
        format!("  {word:<0$}{means}\n", width - 2)
    };
    rows.iter().map(line).collect()
}

/// Wraps `text` to the width of the help; all lines but the first start with `indent` blanks.
fn wrapped(text: &str, indent: usize) -> String {
    let (mut lines, mut column) = (String::new(), indent);
    for word in text.split_whitespace() {
        if column > indent && column + 1 + word.len() > WIDTH {
            lines.push('\n');
            lines.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if column > indent {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += word.len();
    }
    lines
}

#[cfg(test)]
mod tests {
    use media::{EventType, MarkerStatus};

    use super::*;

    #[test]
    fn the_tables_have_the_words_of_the_code() {
        let words =
            |head| -> Vec<String> { table(head).into_iter().map(|(word, _)| word).collect() };
        let types = [
            EventType::SceneCut,
            EventType::ArtifactSuspected,
            EventType::KeyframeKeep,
            EventType::ContextObservation,
        ];
        for kind in types {
            assert!(words("event_type").iter().any(|word| word == kind.as_str()), "{kind:?}");
        }
        assert_eq!(words("status"), MarkerStatus::ALL.map(|status| status.as_str()));
        let kinds = words("kind").join(", ");
        for kind in timeline::EventKind::ALL {
            let is_there = kinds.split(", ").any(|word| word == kind.as_str());
            assert!(is_there, "docs/EVENTS.md lacks {}", kind.as_str());
        }
        assert!(confidence().contains("0 to 1"));
        assert!(of_events().lines().chain(of_markers().lines()).all(|line| line.len() <= WIDTH));
    }
}
