//! The privacy policy, from the settings: stored data with place and lifetime.

use std::time::Duration;

/// Settings that a privacy policy mentions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrivacySettings {
    pub responses: ResponsePolicy,
    /// Lifetime of stored responses.
    pub responses_kept: Duration,
    /// Lifetime of polled requests after their last result.
    pub requests_kept: Duration,
    pub media: MediaPlace,
    pub media_kept: Duration,
    /// Lifetime of records of ended jobs.
    pub records_kept: Duration,
    /// Lifetime of cached replies, for requests with an `Idempotency-Key`.
    pub replies_kept: Duration,
    /// Time between the mark of the AI Horde API and the deletion.
    pub grace: Duration,
    /// Whether credentials are removed from prompts for public workers.
    pub scrubs_secrets: bool,
    pub database: DatabaseKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponsePolicy {
    /// All responses, unless the request sets `store: false`.
    UnlessRefused,
    /// Responses with `store: true` in the request.
    OnRequest,
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaPlace {
    Folder,
    Bucket,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseKind {
    Sqlite,
    Postgres,
}

/// The policy as Markdown.
pub fn policy(settings: &PrivacySettings) -> String {
    format!("{INTRODUCTION}\n{}", storage_section(settings))
}

const INTRODUCTION: &str = "\
# Privacy

The program writes this page from the settings in force: which data this service stores, where, and for how long. The
operator of this address runs the service and answers for it.
";

/// The part of a policy given by the settings.
pub fn storage_section(settings: &PrivacySettings) -> String {
    let PrivacySettings {
        responses_kept,
        requests_kept,
        media_kept,
        records_kept,
        replies_kept,
        grace,
        ..
    } = *settings;
    let responses = responses(settings.responses, responses_kept);
    let (requests, media) = (span(requests_kept), span(media_kept));
    let (records, replies, grace) = (span(records_kept), span(replies_kept), span(grace));
    let place = match settings.media {
        MediaPlace::Folder => "in a folder of this service",
        MediaPlace::Bucket => "in an S3 bucket of the operator",
    };
    let secrets = match settings.scrubs_secrets {
        true => {
            "Passwords, keys and tokens that the program recognises are removed from a prompt before a public worker \
             sees it."
        }
        false => "Passwords and keys in a prompt are sent to workers as they are.",
    };
    let overwritten = match settings.database {
        DatabaseKind::Sqlite => {
            "Deleted texts are overwritten in the database file, and leave its log within a minute."
        }
        DatabaseKind::Postgres => {
            "The database server overwrites deleted texts when it uses their space again."
        }
    };
    format!(
        "\
## Prompts and results

- **Requests that are answered at once** (chats, completions, messages, embeddings, reranking, transcriptions, speech):
  prompt and result are kept in memory while the request runs, and are not written to the database. With the header
  `Idempotency-Key`, the reply stays in memory for up to {replies}, and in the database, encrypted so that it is read with that
  header alone.
{responses}
- **Requests whose result is fetched later** (the AI Horde API, `async: true`, `/v1/videos`): the request, with its prompt, and
  the result are stored in the database until the request expires, {requests} after its last result at most. If the
  request names a webhook, the result is sent there, too.
- **Media**: images, sounds, videos and documents that were generated are stored {place} for up to {media}. The link of a
  file is enough to download it. An image may carry its prompt and settings inside the file. Images and sounds that a
  request brings along are stored there until the request has ended, and after a crash for up to {media}.
- {overwritten}

## Workers

- **Workers see prompts.** Workers are computers of volunteers, or of the operator. A worker gets the whole request: prompt,
  images, sounds and settings. A worker does not learn who sent a request and never receives your key. Do not send anything
  that must stay secret.
- {secrets}

## Records

- **Job records** hold the account, the worker, the model, the number of tokens or images, times, kudos and cost, and no
  prompt or result. Job records and their ledger entries are kept for {records}. Balances and totals without accounts remain.

## Accounts

- **An account** holds a login, a display name, roles, an optional contact, a balance, the digest and label of each key, and
  what its user creates: shared keys, styles, collections, teams and messages to workers. The text of a key is not stored.
- **Export**: `GET /v1/account/export` returns all that is stored about an account.
- **Deletion**: `DELETE /v1/account` deletes an account: keys stop working within a second; stored responses, requests, results,
  media, styles and personal data are deleted; ledger entries stay, without a name, and so does a team with workers of others. The AI Horde API's `DELETE
  /api/v2/users/ID` deletes responses, requests, results and media at once, and the account {grace} later, when it is
  called again.

## Addresses and logs

- **IP addresses** are used for rate limits, in memory. The database holds the address from which each worker connected
  last, addresses for as long as they are blocked, and for one day the address of a client whose prompt a filter refused.
- **Logs** hold no prompts, results, keys or IP addresses.
- **Copies**: the operator may keep backups of the database for longer than these times.
"
    )
}

fn responses(policy: ResponsePolicy, kept: Duration) -> String {
    let kept = span(kept);
    let which = match policy {
        ResponsePolicy::UnlessRefused => {
            format!(
                "the input and the response are stored in the database for {kept}, unless the request says `\"store\": false`."
            )
        }
        ResponsePolicy::OnRequest => {
            format!(
                "the input and the response are stored in the database for {kept} if the request says `\"store\": true`, and \
                 not otherwise."
            )
        }
        ResponsePolicy::Never => return "- **Responses** (`/v1/responses`) are not stored: input and response are kept in \
            memory while the request runs."
            .to_owned(),
    };
    format!(
        "- **Responses** (`/v1/responses`): {which} A response that is not stored is kept in memory while the request runs. \
         `DELETE /v1/responses/ID` deletes a stored response at once."
    )
}

/// In the largest unit that divides it.
fn span(time: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [
        (86_400, "day"),
        (3600, "hour"),
        (60, "minute"),
        (1, "second"),
    ];
    // Days from two on; one day is "24 hours".
    let seconds = time.as_secs();
    let fits = |(unit, _): &&(u64, &str)| {
        seconds.is_multiple_of(*unit) && (*unit < 86_400 || seconds > 86_400)
    };
    let (unit, name) = UNITS.iter().find(fits).unwrap_or(&(1, "second"));
    let count = seconds / unit;
    match count {
        1 => format!("1 {name}"),
        _ => format!("{count} {name}s"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::span;

    #[test]
    fn spans_are_told_in_the_largest_unit_that_divides_them() {
        let check = |seconds, expected| assert_eq!(span(Duration::from_secs(seconds)), expected);
        check(30 * 86_400, "30 days");
        check(86_400, "24 hours");
        check(3600, "1 hour");
        check(5400, "90 minutes");
        check(3720, "62 minutes");
        check(61, "61 seconds");
    }
}
