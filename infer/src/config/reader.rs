//! Parser of the TOML text, by hand so that each error names its line and field.

use std::{collections::HashSet, ops::Range, time::Duration};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    ApiKey, ApiProtocol, BACKENDS_MAX, BackendConfig, BaseUrl, ConfigError, OpenaiKind, TIMEOUT_MAX,
};

const FIELDS: &str =
    "name, type, base_url, api_key, model, upstream_model, priority, timeout_ms, openai_kind";
const PRIORITY_MAX: u64 = 1_000_000;
const TIMEOUT_MS_MIN: u64 = 100;
/// Longest name or model id, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// Source text with its file name, for line numbers in errors.
struct Reader<'a> {
    file: &'a str,
    text: &'a str,
    /// Look-up of a variable `${NAME}`.
    lookup: &'a dyn Fn(&str) -> Option<String>,
}

struct BackendTable<'a> {
    reader: &'a Reader<'a>,
    table: &'a DeTable<'a>,
    span: Range<usize>,
    index: usize,
}

impl BackendConfig {
    /// Parses the backends that `text` declares, in the file's order. `${NAME}` in a string is replaced by
    /// `lookup(NAME)`; `file` names the text in errors.
    pub fn parse(
        file: &str,
        text: &str,
        lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Vec<BackendConfig>, ConfigError> {
        let reader = Reader { file, text, lookup };
        let document = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            reader.error(at, "the file", &format!("is not TOML: {}", error.message()))
        })?;
        let mut backends = Vec::new();
        for (key, value) in document.get_ref() {
            if key.get_ref() != "backends" {
                let unknown = "is unknown; known are backends";
                return Err(reader.error(key.span().start, key.get_ref(), unknown));
            }
            backends = reader.backends(value)?;
        }
        Ok(backends)
    }
}

impl Reader<'_> {
    fn error(&self, at: usize, field: &str, problem: &str) -> ConfigError {
        let before = self.text.as_bytes().iter().take(at);
        let line = 1 + before.filter(|byte| **byte == b'\n').count();
        let (field, problem) = (field.to_owned(), problem.to_owned());
        ConfigError { file: self.file.to_owned(), line, field, problem }
    }

    fn backends(&self, value: &Spanned<DeValue<'_>>) -> Result<Vec<BackendConfig>, ConfigError> {
        let wrong = |at: usize, problem: &str| self.error(at, "backends", problem);
        let tables = "must be an array of tables: [[backends]]";
        let Some(array) = value.get_ref().as_array() else {
            return Err(wrong(value.span().start, tables));
        };
        if array.len() > BACKENDS_MAX {
            let many = format!("has more than {BACKENDS_MAX} entries");
            return Err(wrong(value.span().start, &many));
        }
        let mut backends: Vec<BackendConfig> = Vec::new();
        let mut names = HashSet::new();
        for (index, item) in array.iter().enumerate() {
            let Some(table) = item.get_ref().as_table() else {
                return Err(wrong(item.span().start, tables));
            };
            let entry = BackendTable { reader: self, table, span: item.span(), index };
            let backend = entry.backend()?;
            if !names.insert(backend.name.clone()) {
                return Err(entry.error("name", "is the name of an earlier backend too"));
            }
            backends.push(backend);
        }
        Ok(backends)
    }

    fn interpolated(&self, raw: &str) -> Result<String, String> {
        let wrong = || "holds a ${ that is not closed or holds no variable name".to_owned();
        let mut text = String::new();
        let mut rest = raw;
        while let Some((before, after)) = rest.split_once("${") {
            let (name, behind) = after.split_once('}').ok_or_else(wrong)?;
            let named = |at: usize, byte: u8| {
                byte == b'_' || byte.is_ascii_alphabetic() || (at > 0 && byte.is_ascii_digit())
            };
            if name.is_empty() || !name.bytes().enumerate().all(|(at, byte)| named(at, byte)) {
                return Err(wrong());
            }
            let value = (self.lookup)(name).filter(|value| !value.is_empty());
            text.push_str(before);
            let unset = || format!("refers to the variable {name}, which is not set");
            text.push_str(&value.ok_or_else(unset)?);
            rest = behind;
        }
        text.push_str(rest);
        Ok(text)
    }
}

impl BackendTable<'_> {
    /// Returns an error about `field`, at the line of the field or else of the table.
    fn error(&self, field: &str, problem: &str) -> ConfigError {
        let at = self.table.get(field).map_or(self.span.start, |value| value.span().start);
        self.error_at(at, field, problem)
    }

    fn error_at(&self, at: usize, field: &str, problem: &str) -> ConfigError {
        self.reader.error(at, &format!("backends[{}].{field}", self.index), problem)
    }

    fn optional(&self, field: &str) -> Result<Option<String>, ConfigError> {
        let Some(value) = self.table.get(field) else {
            return Ok(None);
        };
        let Some(raw) = value.get_ref().as_str() else {
            return Err(self.error(field, "must be a string"));
        };
        self.reader.interpolated(raw).map(Some).map_err(|problem| self.error(field, &problem))
    }

    fn required(&self, field: &str) -> Result<String, ConfigError> {
        self.optional(field)?.ok_or_else(|| self.error(field, "is missing"))
    }

    /// Checks a name: 1 to 256 visible ASCII characters.
    fn checked_name(&self, field: &str, text: String) -> Result<String, ConfigError> {
        let fits = !text.is_empty()
            && text.len() <= NAME_BYTES_MAX
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        let wrong = || self.error(field, "must be 1 to 256 visible ASCII characters");
        fits.then_some(text).ok_or_else(wrong)
    }

    fn optional_name(&self, field: &str) -> Result<Option<String>, ConfigError> {
        self.optional(field)?.map(|text| self.checked_name(field, text)).transpose()
    }

    fn integer(&self, field: &str, min: u64, max: u64) -> Result<Option<u64>, ConfigError> {
        let Some(value) = self.table.get(field) else {
            return Ok(None);
        };
        let number = value.get_ref().as_integer().and_then(|integer| {
            // A sign or a fraction fails to parse and is reported like a number out of range.
            u64::from_str_radix(integer.as_str(), integer.radix()).ok()
        });
        let number = number.filter(|number| (min..=max).contains(number));
        let outside = || self.error(field, &format!("must be an integer in [{min}, {max}]"));
        number.map(Some).ok_or_else(outside)
    }

    fn api(&self) -> Result<ApiProtocol, ConfigError> {
        let kind = match self.optional("openai_kind")?.as_deref() {
            None => None,
            Some("vllm") => Some(OpenaiKind::Vllm),
            Some("sglang") => Some(OpenaiKind::Sglang),
            Some("mlx") => Some(OpenaiKind::Mlx),
            Some(_) => {
                return Err(self.error("openai_kind", "must be vllm, sglang or mlx"));
            }
        };
        match self.required("type")?.as_str() {
            "openai_compat" => Ok(ApiProtocol::Openai(kind)),
            "gemini" if kind.is_none() => Ok(ApiProtocol::Gemini),
            "gemini" => Err(self.error("openai_kind", "needs type = \"openai_compat\"")),
            _ => Err(self.error("type", "must be openai_compat or gemini")),
        }
    }

    fn base_url(&self, api: ApiProtocol) -> Result<BaseUrl, ConfigError> {
        let text = self.required("base_url")?;
        let url = match api {
            ApiProtocol::Openai(_) => BaseUrl::openai(&text),
            ApiProtocol::Gemini => BaseUrl::gemini(&text),
        };
        url.map_err(|problem| self.error("base_url", problem))
    }

    fn api_key(&self) -> Result<Option<ApiKey>, ConfigError> {
        let key = self.optional("api_key")?.map(|text| {
            ApiKey::new(text).ok_or_else(|| {
                self.error("api_key", "must be visible ASCII characters without spaces")
            })
        });
        key.transpose()
    }

    fn backend(&self) -> Result<BackendConfig, ConfigError> {
        let known = |key: &str| FIELDS.split(", ").any(|field| field == key);
        if let Some((key, _)) = self.table.iter().find(|(key, _)| !known(key.get_ref())) {
            let unknown = format!("is unknown; known are {FIELDS}");
            return Err(self.error_at(key.span().start, key.get_ref(), &unknown));
        }
        let name = self.checked_name("name", self.required("name")?)?;
        let api = self.api()?;
        let base_url = self.base_url(api)?;
        let model = self.optional_name("model")?;
        let upstream_model = self.optional_name("upstream_model")?;
        if upstream_model.is_some() && model.is_none() {
            return Err(self.error("upstream_model", "needs model beside it"));
        }
        let priority = self.integer("priority", 0, PRIORITY_MAX)?;
        let priority = priority.ok_or_else(|| self.error("priority", "is missing"))?;
        let timeout_ms_max = u64::try_from(TIMEOUT_MAX.as_millis()).unwrap_or(u64::MAX);
        let timeout = self.integer("timeout_ms", TIMEOUT_MS_MIN, timeout_ms_max)?;
        Ok(BackendConfig {
            name: name.into(),
            api,
            base_url,
            api_key: self.api_key()?,
            model,
            upstream_model,
            priority: u32::try_from(priority).unwrap_or(u32::MAX),
            timeout: timeout.map(Duration::from_millis),
        })
    }
}
