//! Start with an object store: determines by the markers which files it lacks.

use std::{collections::HashSet, fs};

use media::BlobHash;

use super::{
    AWAY, Files, GONE, UNSENT,
    backed::{Backed, Backing},
};
use crate::{Result, TimelineError};

/// Note with the name of the object store that the markers refer to.
const PLACE: &str = "object-store";

/// Files and markers found in a directory.
#[derive(Default)]
struct Found {
    here: HashSet<BlobHash>,
    bytes: u64,
    unsent: HashSet<BlobHash>,
    away: HashSet<BlobHash>,
    gone: HashSet<BlobHash>,
}

impl Files {
    /// Determines by the markers which local files `backing` has. Returns an error if some files exist only
    /// in another store.
    pub(super) fn settle(&self, backing: Option<Backing>) -> Result<Option<Backed>> {
        let known = self.note(PLACE)?;
        let place = backing.as_ref().map(|backing| backing.place.as_str());
        if known.is_none() && place.is_none() {
            return Ok(None);
        }
        let is_other = known.as_deref() != place;
        let mut found = self.look(is_other)?;
        if is_other {
            let is_only_away =
                |hash: &&BlobHash| !found.here.contains(*hash) && !found.gone.contains(*hash);
            let only_away = found.away.iter().filter(is_only_away).count();
            if let Some(place) = known.filter(|_| only_away > 0) {
                let dir = self.dir.path().to_owned();
                return Err(TimelineError::Elsewhere { dir, place, files: only_away });
            }
            self.begin_anew(&mut found, place)?;
        }
        Ok(backing.map(|backing| Backed::new(backing, found.unsent, found.bytes)))
    }

    /// Marks the local files as unsent for the store called `place`, because another store had them.
    fn begin_anew(&self, found: &mut Found, place: Option<&str>) -> Result<()> {
        if place.is_some() {
            found.here.iter().try_for_each(|hash| self.mark(hash, UNSENT))?;
            found.unsent.extend(&found.here);
        } else {
            found.unsent.iter().try_for_each(|hash| self.unmark(hash, UNSENT))?;
        }
        found.away.iter().try_for_each(|hash| self.unmark(hash, AWAY))?;
        found.gone.iter().try_for_each(|hash| self.unmark(hash, GONE))?;
        self.folders()?.iter().try_for_each(|folder| self.sync_folder(folder))?;
        if let Some(place) = place {
            return self.write_note(PLACE, place);
        }
        let path = self.dir.path().join(PLACE);
        fs::remove_file(&path).map_err(TimelineError::io("remove a note", &path))
    }

    /// Finds the local bytes and unsent files; with `all`, also local files and other markers.
    fn look(&self, all: bool) -> Result<Found> {
        let mut found = Found::default();
        self.walk(|hash, mark, entry| {
            if mark.is_none() {
                found.bytes += entry.metadata().map_or(0, |file| file.len());
            }
            let named = match mark {
                Some(UNSENT) => &mut found.unsent,
                _ if !all => return,
                None => &mut found.here,
                Some(AWAY) => &mut found.away,
                Some(_) => &mut found.gone,
            };
            named.insert(hash);
        })?;
        Ok(found)
    }
}
