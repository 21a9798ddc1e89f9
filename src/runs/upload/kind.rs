//! Media file kinds: containers of libav, with their file extensions and media types.

/// Extensions and media types of a container, the most common first.
type Extensions = &'static [(&'static str, &'static str)];

const KINDS: [(&str, Extensions); 11] = [
    (
        "mov,mp4,m4a,3gp,3g2,mj2",
        &[
            ("mp4", "video/mp4"),
            ("m4v", "video/mp4"),
            ("mov", "video/quicktime"),
            ("3gp", "video/3gpp"),
            ("3g2", "video/3gpp2"),
        ],
    ),
    ("matroska,webm", &[("mkv", "video/matroska"), ("webm", "video/webm")]),
    ("mpegts", &[("ts", "video/mp2t"), ("m2ts", "video/mp2t"), ("mts", "video/mp2t")]),
    ("avi", &[("avi", "video/x-msvideo")]),
    ("flv", &[("flv", "video/x-flv")]),
    ("h264", &[("h264", "video/h264"), ("264", "video/h264")]),
    ("hevc", &[("h265", "video/h265"), ("265", "video/h265"), ("hevc", "video/h265")]),
    ("ivf", &[("ivf", "video/x-ivf")]),
    ("obu", &[("obu", "video/av1")]),
    ("mjpeg", &[("mjpeg", "video/x-motion-jpeg"), ("mjpg", "video/x-motion-jpeg")]),
    ("m4v", &[("mp4v", "video/mp4v-es")]),
];

const UNKNOWN: &str = "application/octet-stream";

/// Returns the extension for a file of `container`: its own if that fits.
pub fn extension(container: &str, file_name: &str) -> &'static str {
    let kinds = KINDS.iter().find(|(name, _)| *name == container).map_or(&[][..], |kind| kind.1);
    let own = suffix(file_name);
    let fits = kinds.iter().find(|(known, _)| own.eq_ignore_ascii_case(known));
    fits.or(kinds.first()).map_or("bin", |(extension, _)| extension)
}

pub fn media_type(file_name: &str) -> &'static str {
    let own = suffix(file_name);
    let mut all = KINDS.iter().flat_map(|(_, extensions)| extensions.iter());
    all.find(|(known, _)| own.eq_ignore_ascii_case(known)).map_or(UNKNOWN, |(_, kind)| kind)
}

fn suffix(file_name: &str) -> &str {
    file_name.rsplit_once('.').map_or("", |(_, suffix)| suffix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extension_is_one_of_the_container_that_was_found() {
        let mp4 = "mov,mp4,m4a,3gp,3g2,mj2";
        let cases = [
            (mp4, "a.MOV", "mov", "video/quicktime"),
            (mp4, "a.mp4", "mp4", "video/mp4"),
            (mp4, "a.html", "mp4", "video/mp4"),
            (mp4, "", "mp4", "video/mp4"),
            ("matroska,webm", "a.webm", "webm", "video/webm"),
            ("matroska,webm", "a.mp4", "mkv", "video/matroska"),
            ("m4v", "a.m4v", "mp4v", "video/mp4v-es"),
            ("odd", "a.sh", "bin", "application/octet-stream"),
        ];
        for (container, name, expected, kind) in cases {
            let found = extension(container, name);
            assert_eq!(found, expected, "{container} {name}");
            assert_eq!(media_type(&format!("x.{found}")), kind, "{container} {name}");
        }
    }
}
