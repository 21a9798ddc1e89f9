//! Remote files through the control socket: the result equals that of the same file on disk.

use std::{fs, path::Path};

use clips::pick;

use crate::{
    shelf::Shelf,
    support::{alone, long_clip, rendered, run, spec},
};

fn shelf_with(path: &Path) -> Shelf {
    let shelf = Shelf::new();
    shelf.put("clip", fs::read(path).expect("readable"));
    shelf
}

#[test]
fn a_remote_file_gives_what_it_gives_on_disk() {
    let _alone = alone();
    // The first file has its index at the end.
    let mut clips = vec![long_clip(), rendered("short.ts", "testsrc2=s=320x240:r=25:d=4", "")];
    let without_ranges = clips.len();
    clips.push(rendered("short.mkv", "testsrc2=s=320x240:r=25:d=4", ""));
    clips.extend(pick(
        &["bigbuckbunny.mp4", "hevc.mp4", "water.webm"],
        &["nature_water.webm", "phone_adx-topshots.mp4"],
    ));
    let cases = clips.iter().map(|path| (path, true, 8));
    for (path, ranges, most) in
        cases.chain(clips[..without_ranges].iter().map(|path| (path, false, 4)))
    {
        let expected = run(spec(path)).expect("a result").settled();
        let mut shelf = shelf_with(path);
        shelf.ranges = ranges;
        let found = shelf.run("clip").expect("a result").settled();
        assert!(found == expected, "{}: {:?}", path.display(), shelf.asked());
        assert!(shelf.asked().len() <= most, "{}: {:?}", path.display(), shelf.asked());
    }
}

#[test]
fn a_stream_of_unknown_length_is_read_in_one_go() {
    let _alone = alone();
    let path = rendered("short.ts", "testsrc2=s=320x240:r=25:d=4", "");
    let expected = run(spec(&path)).expect("a result").settled();
    let mut shelf = shelf_with(&path);
    (shelf.sized, shelf.ranges) = (false, false);
    let found = shelf.run("clip").expect("a result").settled();
    assert!(found.signals == expected.signals && found.stills == expected.stills);
    assert_eq!(shelf.asked(), ["clip@0"]);
}
