//! Every `rc` that can be sent: its spelling, its status and its default message.
//!
//! A spelling is a promise to clients of many years, odd ones included: some end in a dot, some hold a space. Where the
//! public service is known to send something else by accident, the documented code is sent:
//!
//! | documented | public service | here |
//! | --- | --- | --- |
//! | `StyleMismatch`, `StyleGetMistmatch`, `StylePromptMissingVars` | `BadRequest` | as documented, 400 |
//! | `SharedKeyInvalid`, and `SharedKeyEmpty`, `SharedKeyExpired` for a style's key | `BadRequest` | as documented |
//! | `SpecialFieldNeedsSpecialUser`, `ExampleURLAlreadyInUse` | `BadRequest` | as documented, 400 |
//! | `SpecialModelNeedsSpecialUser`, `SpecialForbidden`, `TooManyStyleExamples` | `Forbidden` | as documented, 403 |
//! | `MaintenanceMode` | 400 | 503, as the specification says |
//! | codes of the retired synchronous route, and base codes | never sent | no row |
//!
//! The statuses stay those of the public service, so a client that looks at the status alone sees no difference but for
//! maintenance.

macro_rules! codes {
    ($($name:ident = $status:literal, $rc:literal, $message:literal;)*) => {
        /// A stable code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $($name,)* }

        impl Code {
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            pub const fn row(self) -> CodeRow {
                match self {
                    $(Self::$name => CodeRow { status: $status, rc: $rc, message: $message },)*
                }
            }
        }
    };
}

/// Public properties of a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeRow {
    pub status: u16,
    pub rc: &'static str,
    pub message: &'static str,
}

#[rustfmt::skip]
codes! {
    // Anything.
    BadRequest                  = 400, "BadRequest", "invalid request";
    Forbidden                   = 403, "Forbidden", "Access Denied";
    NulByteInPayload            = 400, "NulByteInPayload", "a string contains a NUL character; remove it";
    InvalidPromptEncoding       = 400, "InvalidPromptEncoding", "invalid Unicode: unpaired surrogate";
    MaintenanceMode             = 503, "MaintenanceMode", "the service is in maintenance mode and accepts no new requests; retry later";
    TooManyPrompts              = 429, "TooManyPrompts", "too many of your requests are queued; retry when some have finished";
    TimeoutIP                   = 403, "TimeoutIP", "your IP address is temporarily blocked; retry later";
    BannedClientAgent           = 403, "BannedClientAgent", "this client is blocked; update it or use another client";
    Locked                      = 423, "Locked", "the worker cannot be deleted while a finished job refers to it; put it in maintenance mode and retry later";

    // Who asks.
    InvalidApiKey               = 401, "InvalidAPIKey", "Invalid API Key";
    WrongCredentials            = 403, "WrongCredentials", "wrong credentials: this belongs to another user";
    NotAdmin                    = 403, "NotAdmin", "Access Denied: only admins may do this";
    NotModerator                = 403, "NotModerator", "Access Denied: only moderators may do this";
    NotOwner                    = 403, "NotOwner", "Access Denied: only the owner or a moderator may do this";
    NotUserOrMod                = 403, "NotUserOrMod", "Access Denied: only the user or a moderator may do this";
    NotRequestOwner             = 403, "NotRequestOwner", "Access Denied: only the key that sent this request may read it";
    NotAllowedAwards            = 403, "NotAllowedAwards", "Access Denied: this account may not award kudos";
    AnonForbidden               = 403, "AnonForbidden", "Access Denied: anonymous users cannot do this; use your own API key";
    AnonForbiddenWorker         = 403, "AnonForbiddenWorker", "Access Denied: anonymous users cannot run or change workers; use your own API key";
    AnonForbiddenUserMod        = 403, "AnonForbiddenUserMod", "Access Denied: anonymous users cannot change users";
    AnonForbiddenUser           = 403, "AnonForbiddenUser", "Access Denied: anonymous users cannot delete users";
    UntrustedTeamCreation       = 403, "UntrustedTeamCreation", "Access Denied: only trusted users may create teams";
    UntrustedUnsafeIP           = 403, "UntrustedUnsafeIP", "requests from VPN or proxy addresses are temporarily refused for untrusted users";
    DeletedUser                 = 403, "DeletedUser", "this account is scheduled for deletion";
    OnlyServiceAccountProxy     = 400, "OnlyServiceAccountProxy", "only service accounts may send proxied_account";
    NonServiceForbidden         = 403, "NonServiceForbidden", "Access Denied: only service accounts have a proxy passkey";
    RequiresTrust               = 400, "RequiresTrust", "disable_batching with n above 1 requires a trusted user or patron";
    CannotDeleteMod             = 403, "CannotDeleteMod", "a moderator's account cannot be deleted";
    CannotWipeActiveUser        = 403, "CannotWipeActiveUser", "an account can be wiped 30 days after its deletion, if unused since";
    UserNotDeleted              = 400, "UserNotDeleted", "the account is not scheduled for deletion";

    // Missing records.
    WorkerNotFound              = 404, "WorkerNotFound", "no worker has this id";
    RequestNotFound             = 404, "RequestNotFound", "no request has this id; it may have expired";
    InvalidJobId                = 404, "InvalidJobID", "no job has this id";
    UserNotFound                = 404, "UserNotFound", "user not found";
    TeamNotFound                = 404, "TeamNotFound", "no team has this id";
    FilterNotFound              = 404, "FilterNotFound", "no filter has this id";
    StyleNotFound               = 404, "StyleNotFound", "no style has this id or name";
    ImageStyleNotFound          = 404, "Image styleNotFound", "no image style has this id";
    TextStyleNotFound           = 404, "Text styleNotFound", "no text style has this id";
    StyleExampleNotFound        = 404, "Style exampleNotFound", "the style has no example with this id";
    CollectionNotFound          = 404, "CollectionNotFound", "no collection has this id or name";
    WorkerMessageNotFound       = 404, "WorkermessageNotFound", "no message has this id";

    // Prompts and text.
    MissingPrompt               = 400, "MissingPrompt", "prompt must not be empty";
    CorruptPrompt               = 400, "CorruptPrompt", "the prompt was rejected by the content filters of this service";
    InvalidPromptSize           = 400, "InvalidPromptSize", "the prompt is too long: at most 7500 words and 64 KiB";
    TokenOverflow               = 400, "TokenOverflow", "max_length must not exceed max_context_length";
    MissingFullSamplerOrder     = 400, "MissingFullSamplerOrder", "sampler_order must contain at least 7 different entries";
    TooManyStopSequences        = 400, "TooManyStopSequences", "stop_sequence must contain at most 128 different strings";
    ExcessiveStopSequence       = 400, "ExcessiveStopSequence", "stop_sequence must contain at most 2000 characters in total";

    // Images.
    ImageValidationFailed       = 400, "ImageValidationFailed", "the source image cannot be read";
    SourceImageResolutionExceeded = 400, "SourceImageResolutionExceeded", "the source image has too many pixels; scale it down";
    SourceImageSizeExceeded     = 400, "SourceImageSizeExceeded", "the source image is larger than 5 MB";
    SourceImageUrlInvalid       = 400, "SourceImageUrlInvalid", "no image was found at this URL";
    SourceImageUnreadable       = 400, "SourceImageUnreadable", "the source image cannot be opened";
    InpaintingMissingMask       = 400, "InpaintingMissingMask", "inpainting requires source_mask, or a source image with an alpha channel";
    SourceMaskUnnecessary       = 400, "SourceMaskUnnecessary", "source_mask requires source_image";
    SourceImageRequiredForModel = 400, "SourceImageRequiredForModel", "this model requires source_image";
    UnexpectedModelName         = 400, "UnexpectedModelName", "models contains a post-processor or control type; name only models";
    UnsupportedControlNet       = 400, "ControlNetUnsupported", "this control_type does not work with this model";
    ControlNetSourceMissing     = 400, "ControlNetSourceMissing", "control_type requires source_image";
    ControlNetInpaintingMismatch = 400, "ControlNetInpaintingMismatch", "control_type does not work with inpainting";
    ControlNetMismatch          = 400, "ControlNetMismatch", "control_type does not work with models of this family";
    QrCodeMismatch              = 400, "ControlNetMismatch.", "the workflow qr_code works only with SD1.5 and SDXL models";
    InvalidControlType          = 400, "InvalidControlType", "the form annotation requires payload.control_type";
    HiResMismatch               = 400, "HiResMismatch", "hires_fix does not work with models of this family";
    FlowShiftInapplicable       = 400, "FlowShiftInapplicable", "flow_shift does not work with models of this family";
    InvalidTransparencyModel    = 400, "InvalidTransparencyModel", "transparent works only with SD1.5 and SDXL models";
    InvalidTransparencyImg2Img  = 400, "InvalidTransparencyImg2Img", "transparent does not work with extra_source_images";
    InvalidTransparencyCN       = 400, "InvalidTransparencyCN", "transparent does not work with control_type";
    InvalidRemix                = 400, "InvalidRemix", "remix works only with Stable Cascade models";
    InvalidExtraSourceImages    = 400, "InvalidExtraSourceImages.", "extra_source_images requires source_processing remix";
    TooManyExtraSourceImages    = 400, "TooManyExtraSourceImages.", "extra_source_images must contain at most 5 images";
    MoreThanMinExtraSourceImage = 400, "MoreThanMinExtraSourceImage.", "more than one entry in extra_source_images requires a trusted user or patron";
    InvalidExtraTexts           = 400, "InvalidExtraTexts.", "extra_texts requires the workflow qr_code";
    MissingExtraTexts           = 400, "MissingExtraTexts.", "the workflow qr_code requires an extra_texts entry with the reference qr_code";
    TooManyLoras                = 400, "TooManyLoras", "loras must contain at most 5 entries";
    BadLoraVersion              = 400, "BadLoraVersion", "the name of a LoRA with is_version must be a number";
    TooManyTIs                  = 400, "TooManyTIs", "tis must contain at most 20 entries";
    TooManyUpscalers            = 400, "TooManyUpscalers", "post_processing must contain at most one upscaler";
    BadCFGDecimals              = 400, "BadCFGDecimals", "cfg_scale must have at most 2 decimals";
    BadCFGNumber                = 400, "BadCFGNumber", "cfg_scale must be a number";
    SpecialMissingUsername      = 400, "SpecialMissingUsername", "the name of a special model must end in its user's alias";
    SpecialMissingPayload       = 400, "SpecialMissingPayload", "a special model requires params.special";
    SpecialFieldNeedsSpecialUser = 400, "SpecialFieldNeedsSpecialUser", "params.special requires the special role";
    SpecialModelNeedsSpecialUser = 403, "SpecialModelNeedsSpecialUser", "special models require the special role";
    SpecialForbidden            = 403, "SpecialForbidden", "this special model belongs to another user";
    BetaAnonForbidden           = 403, "BetaAnonForbidden", "the beta is not available to anonymous users";
    BetaComparisonFault         = 400, "BetaComparisonFault", "the beta compares two images: n must be 2";

    // Jobs.
    DuplicateGen                = 400, "DuplicateGen", "the job was already submitted";
    AbortedGen                  = 400, "AbortedGen", "the job was aborted because it took too long. Please check your worker speed";
    ProcGenNotFound             = 400, "ProcGenNotFound", "the rated image does not belong to this request";

    // Ratings.
    InvalidAestheticAttempt     = 400, "InvalidAestheticAttempt", "this rating cannot be accepted";
    AestheticsNotCompleted      = 400, "AestheticsNotCompleted", "the request is not finished yet";
    AestheticsNotPublic         = 400, "AestheticsNotPublic", "only requests with shared: true can be rated";
    AestheticsDuplicate         = 400, "AestheticsDuplicate", "ratings contains an image twice";
    AestheticsMissing           = 400, "AestheticsMissing", "ratings and best are missing; send at least one";
    AestheticsSolo              = 400, "AestheticsSolo", "best requires more than one image";
    AestheticsConfused          = 400, "AestheticsConfused", "best must be the image with the highest rating";
    AestheticsAlreadyExist      = 400, "AestheticsAlreadyExist", "this request has already been rated";
    AestheticsServerRejected    = 400, "AestheticsServerRejected", "the ratings were rejected";
    AestheticsServerError       = 400, "AestheticsServerError", "saving the ratings failed";
    AestheticsServerDown        = 400, "AestheticsServerDown", "ratings cannot be saved at the moment; retry later";
    AestheticsServerTimeout     = 400, "AestheticsServerTimeout", "saving the ratings timed out; retry later";

    // Workers.
    PolymorphicNameConflict     = 400, "PolymorphicNameConflict", "a worker of another type has this name; choose another name";
    InvalidPriorityUsername     = 400, "InvalidPriorityUsername", "priority_usernames entries must have the form name#id";
    WorkerMaintenance           = 403, "WorkerMaintenance", "the worker is in maintenance mode";
    WorkerFlaggedMaintenance    = 403, "WorkerFlaggedMaintenance", "the worker was put in maintenance mode because its owner is flagged";
    WorkerInviteOnly            = 403, "WorkerInviteOnly", "the service accepts new workers by invitation only";
    TooManyWorkers              = 403, "TooManyWorkers", "too many workers for this account; ask the operator to be trusted to run more";
    TooManyWorkersTrusted       = 403, "TooManyWorkersTrusted", "too many workers for this account; ask the operator for an invitation to run more";
    TooManySameIps              = 403, "TooManySameIPs", "too many workers at this IP address";
    UnsafeIp                    = 403, "UnsafeIP", "workers behind a VPN or proxy are accepted from trusted users only";
    TooManyNewIps               = 403, "TooManyNewIPs", "the worker's IP address cannot be checked at the moment; retry later";
    WorkerNameAlreadyExists     = 400, "WorkerNameAlreadyExists", "a worker with this name already exists";
    TooLongWorkerName           = 400, "TooLongWorkerName", "the worker's name is too long";
    ProfaneWorkerName           = 400, "ProfaneWorkerName", "the worker's name contains profanity";
    ProfaneWorkerInfo           = 400, "ProfaneWorkerInfo", "the worker's info contains profanity";
    ProfaneBridgeAgent          = 400, "ProfaneBridgeAgent", "bridge_agent contains profanity";
    MessagesOnlyOwnWorkers      = 403, "MessagesOnlyOwnWorkers", "only a moderator may send messages to another user's worker";

    // Users and teams.
    ProfaneUserName             = 400, "ProfaneUserName", "the user name contains profanity";
    ProfaneUserContact          = 400, "ProfaneUserContact", "contact contains profanity";
    ProfaneAdminComment         = 400, "ProfaneAdminComment", "admin_comment contains profanity";
    TooLongUserName             = 400, "TooLongUserName", "the user name must have at most 30 characters";
    ProfaneTeamName             = 400, "ProfaneTeamName", "the team's name contains profanity";
    ProfaneTeamInfo             = 400, "ProfaneTeamInfo", "the team's info contains profanity";
    TeamNameAlreadyExists       = 400, "TeamNameAlreadyExists", "a team with this name already exists";

    // Bodies that change nothing.
    NoWorkerModSelected         = 400, "NoWorkerModSelected", "the request contains no change to the worker";
    NoUserModSelected           = 400, "NoUserModSelected", "the request contains no change to the user";
    NoHordeModSelected          = 400, "NoHordeModSelected", "the request contains no change to a mode";
    NoTeamModSelected           = 400, "NoTeamModSelected", "the request contains no change to the team";
    NoFilterModSelected         = 400, "NoFilterModSelected", "the request contains no change to the filter";
    NoSharedKeyModSelected      = 400, "NoSharedKeyModSelected", "the request contains no change to the shared key";

    // Kudos.
    KudosUpfront                = 403, "KudosUpfront", "not enough kudos: a request of this size must be paid upfront; reduce it or set allow_downgrade";
    KudosTransferFromAnon       = 400, "KudosTransferFromAnon", "anonymous users cannot send kudos";
    InvalidTargetUsername       = 400, "InvalidTargetUsername", "the receiving user does not exist";
    KudosTransferToAnon         = 400, "KudosTransferToAnon", "anonymous users cannot receive kudos";
    KudosTransferToSelf         = 400, "KudosTransferToSelf", "you cannot send kudos to yourself";
    TooFastKudosTransfers       = 400, "TooFastKudosTransfers", "the receiver has just sent you kudos; retry in a minute";
    FaultWhenKudosSending       = 400, "FaultWhenKudosSending", "this account cannot send kudos at the moment";
    SourceAccountFlagged        = 400, "SourceAccountFlagged", "this account is flagged and cannot send kudos";
    EducationCannotSendKudos    = 400, "EducationCannotSendKudos", "education accounts cannot send kudos";
    FaultWhenKudosReceiving     = 400, "FaultWhenKudosReceiving", "the receiver cannot receive kudos at the moment";
    TargetAccountFlagged        = 400, "TargetAccountFlagged", "the receiver is flagged and cannot receive kudos";
    NegativeKudosTransfer       = 400, "NegativeKudosTransfer", "amount must be positive, found a negative number";
    InvalidKudosTransferAmount  = 400, "InvalidKudosTransferAmount", "amount must be positive, found 0";
    IdempotencyKeyConflict      = 400, "IdempotencyKeyConflict", "this Idempotency-Key was used for another transfer; send a new one";
    KudosTransferNotEnough      = 400, "KudosTransferNotEnough", "not enough kudos";
    InvalidAwardUsername        = 400, "InvalidAwardUsername", "the receiving user does not exist";
    KudosAwardToAnon            = 400, "KudosAwardToAnon", "anonymous users cannot be awarded kudos";

    // Shared keys.
    SharedKeyEmpty              = 403, "SharedKeyEmpty", "the shared key has no kudos left";
    SharedKeyExpired            = 403, "SharedKeyExpired", "the shared key has expired";
    SharedKeyInvalid            = 400, "SharedKeyInvalid", "the shared key does not exist or belongs to another user";
    SharedKeyInsufficientKudos  = 403, "SharedKeyInsufficientKudos", "the request costs more kudos than the shared key has left";
    SharedKeyAssignedStyles     = 403, "SharedKeyAssignedStyles", "this shared key works only through its styles";

    // Styles.
    StylesRequiresCustomizer    = 403, "StylesRequiresCustomizer", "only customizers and trusted users may create styles";
    StylesAnonForbidden         = 403, "StylesAnonForbidden", "Access Denied: anonymous users cannot have styles or collections";
    StyleMismatch               = 400, "StyleMismatch", "the style is of another type than the request";
    StyleGetMismatch            = 400, "StyleGetMistmatch", "the style is of another type than this route";
    StylePromptMissingVars      = 400, "StylePromptMissingVars", "the prompt of a style must contain {p}, and for images also {np}";
    TooManyStyleExamples        = 403, "TooManyStyleExamples", "a style may have at most 4 examples; delete one first";
    ExampleUrlAlreadyInUse      = 400, "ExampleURLAlreadyInUse", "this URL is already an example of the style";
}
