// Made by `npm run generate` from spec/; do not edit.

export interface paths {
    "/v1/relayers": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Whom to name as relayer, and on what terms. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description Whom to name as relayer, and on what terms. */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["RelayersReply"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/prepare": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** What would be sponsored, before it is signed. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["PrepareRequest"];
                };
            };
            responses: {
                /** @description Done; each transaction is answered by itself. */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["PrepareReply"];
                    };
                };
                /** @description Refused. */
                400: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description The API key is nobody's. */
                401: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description Too large. */
                413: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description Too many; see Retry-After. */
                429: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description Not now. */
                503: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/relay": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Co-sign and broadcast transactions. */
        post: {
            parameters: {
                query?: {
                    /** @description Answer when all has ended. */
                    wait?: "final";
                    /** @description Seconds to wait; then the answer says what is known. */
                    timeout?: number;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Transactions"];
                };
            };
            responses: {
                /** @description Done; each transaction is answered by itself. */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["RelayReply"];
                    };
                };
                /** @description Refused. */
                400: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description The API key is nobody's. */
                401: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description Too large. */
                413: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description Too many; see Retry-After. */
                429: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description Not now. */
                503: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/transactions/{hash}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What became of a transaction. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    /** @description Client hash, SDK hash or chain hash. */
                    hash: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description What is known of it. */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["TransactionReply"];
                    };
                };
                /** @description Refused. */
                400: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description It was not accepted here, or too long ago. */
                404: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description Too large. */
                413: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description Too many; see Retry-After. */
                429: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description Not now. */
                503: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sign": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Co-sign transactions without broadcasting them. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Transactions"];
                };
            };
            responses: {
                /** @description Done; each transaction is answered by itself. */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["SignReply"];
                    };
                };
                /** @description Refused. */
                400: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description The API key is nobody's. */
                401: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description Too large. */
                413: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description Too many; see Retry-After. */
                429: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description Not now. */
                503: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/broadcast": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Broadcast fully signed transactions. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Transactions"];
                };
            };
            responses: {
                /** @description Done; each transaction is answered by itself. */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["SubmissionReply"];
                    };
                };
                /** @description Refused. */
                400: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description The API key is nobody's. */
                401: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description Too large. */
                413: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description Too many; see Retry-After. */
                429: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description Not now. */
                503: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/network-stats/history": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Averages of the network statistics. */
        get: {
            parameters: {
                query?: {
                    /** @description Milliseconds since the epoch. */
                    from?: number;
                    /** @description Milliseconds since the epoch. */
                    to?: number;
                    /** @description Seconds: 1, 10, 60, 300 or 3600. */
                    resolution?: number;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description Points in order of time. */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["History"];
                    };
                };
                /** @description Refused. */
                400: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description Too large. */
                413: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description Too many; see Retry-After. */
                429: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description Not now. */
                503: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/network-stats/blocks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The newest final blocks of each shard. */
        get: {
            parameters: {
                query?: {
                    /** @description Milliseconds since the epoch: only blocks that were made later. */
                    after?: number;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description Oldest first; at most 256 of a shard. */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["LatestBlocks"];
                    };
                };
                /** @description Refused. */
                400: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description Too large. */
                413: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description Too many; see Retry-After. */
                429: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description Not now. */
                503: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/health": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** State of the service. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description State of the service. */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": Record<string, never>;
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/ready": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Whether submissions are taken. */
        get: {
            parameters: {
                query?: {
                    /** @description `streams`: whether clients are told of the network, whoever signs. */
                    for?: "streams";
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                /** @description It is so. */
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Readiness"];
                    };
                };
                /** @description Refused. */
                400: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["ErrorBody"];
                    };
                };
                /** @description Not now. */
                503: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Readiness"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * SignReply
         * @description The outcome of `POST /v1/sign`; `results` links the signed transactions to their place in the request.
         */
        SignReply: {
            transactions: components["schemas"]["TransactionJson"][];
            failed: components["schemas"]["FailedItem"][];
            results: components["schemas"]["ResultItem"][];
        };
        /**
         * TransactionJson
         * @description The JSON object of the public interfaces: texts as they come, not checked beyond their type.
         */
        TransactionJson: {
            nonce: number;
            value: string;
            receiver: string;
            sender: string;
            gasPrice: number;
            gasLimit: number;
            version: number;
            chainID: string;
            /** @default  */
            senderUsername?: string;
            /** @default  */
            receiverUsername?: string;
            /** @default  */
            data?: string;
            /** @default 0 */
            options?: number;
            /** @default  */
            guardian?: string;
            /** @default  */
            guardianSignature?: string;
            /** @default  */
            relayer?: string;
            /** @default  */
            relayerSignature?: string;
            /** @default  */
            signature?: string;
        };
        /**
         * FailedItem
         * @description One refused transaction of a submission.
         */
        FailedItem: {
            index: number;
            reason: string;
            code: string;
            retryAfterMs?: number;
            detail?: string;
        };
        /**
         * ResultItem
         * @description One accepted transaction of a submission: its hashes, and what was added to it.
         */
        ResultItem: {
            index: number;
            hash: string;
            clientHash: string;
            relayerSignature?: string;
            topic?: string;
            topicRefused?: string;
            sdkHash?: string;
            /** @enum {unknown} */
            state?: "pending";
        };
        /**
         * SubmissionReply
         * @description The outcome of `relay`, `broadcast` and `POST /v1/broadcast`.
         */
        SubmissionReply: {
            action: string;
            /** @enum {unknown} */
            status: "completed" | "failed" | "partial";
            hashes: string[];
            failed: components["schemas"]["FailedItem"][];
            results: components["schemas"]["ResultItem"][];
            requestId?: string | number;
        };
        /**
         * RelayersReply
         * @description The answer of `GET /v1/relayers`.
         */
        RelayersReply: {
            profile: string;
            chainId: string;
            /** @enum {unknown} */
            shardRule: "mask" | "modulo";
            shards: number;
            relayers: components["schemas"]["RelayerItem"][];
            caps: components["schemas"]["SponsorCaps"];
            gas: components["schemas"]["GasRules"];
            maxNonceGap: number;
        };
        /**
         * RelayerItem
         * @description Whom senders of a shard name as `relayer`.
         */
        RelayerItem: {
            shard: number;
            address: string;
            /** @enum {unknown} */
            state: "not ready" | "paused" | "ready" | "short of funds";
            maxGasPrice: number;
        };
        /**
         * SponsorCaps
         * @description The most one sponsored transaction may ask for; amounts in atomic units.
         */
        SponsorCaps: {
            gasPrice: number;
            gasLimit: number;
            fee: string;
            value: string;
            dataBytes: number;
        };
        /**
         * GasRules
         * @description What the network charges; extra gas comes on top for naming a relayer, and for a guardian.
         */
        GasRules: {
            minGasPrice: number;
            minGasLimit: number;
            gasPerDataByte: number;
            extraGasRelayed: number;
            extraGasGuarded: number;
        };
        /**
         * PrepareRequest
         * @description Body of `POST /v1/prepare`.
         */
        PrepareRequest: {
            transaction: components["schemas"]["PrepareTransaction"];
        };
        /**
         * PrepareTransaction
         * @description A transaction as far as the wallet knows it, see `TransactionJson`; it is not signed yet.
         */
        PrepareTransaction: {
            sender: string;
            receiver: string;
            /** @default 0 */
            value?: string;
            /** @default  */
            data?: string;
            /** @default null */
            nonce?: number | null;
            /** @default null */
            gasPrice?: number | null;
            /** @default null */
            gasLimit?: number | null;
            /** @default 0 */
            options?: number;
            /** @default  */
            guardian?: string;
            /** @default  */
            relayer?: string;
            /** @default  */
            senderUsername?: string;
            /** @default  */
            receiverUsername?: string;
        };
        /**
         * PrepareReply
         * @description Whether a transaction would be sponsored now; nothing is reserved.
         */
        PrepareReply: {
            sponsored: boolean;
            shard: number;
            extraGas: number;
            transaction?: components["schemas"]["TransactionJson"];
            maxFee?: string;
            until?: number;
            reason?: string;
            code?: string;
            detail?: string;
            retryAfterMs?: number;
        };
        /**
         * RelayReply
         * @description The outcome of `POST /v1/relay`, as that of `relay`.
         */
        RelayReply: {
            action: string;
            /** @enum {unknown} */
            status: "completed" | "failed" | "partial";
            hashes: string[];
            failed: components["schemas"]["FailedItem"][];
            results: components["schemas"]["RelayedItem"][];
        };
        /**
         * RelayedItem
         * @description One accepted transaction, and with `wait=final` what is known of it.
         */
        RelayedItem: {
            index: number;
            hash: string;
            clientHash: string;
            relayerSignature?: string;
            topic?: string;
            topicRefused?: string;
            sdkHash?: string;
            /** @enum {unknown} */
            state?: "pending";
            transaction?: components["schemas"]["TransactionReply"];
        };
        /**
         * TransactionReply
         * @description What is known of a transaction that was accepted here. Amounts in atomic units.
         */
        TransactionReply: {
            hash: string;
            /** @enum {unknown} */
            state: "dropped" | "fail" | "included" | "pending" | "success" | "superseded" | "written off";
            clientHash: string;
            sender: string;
            nonce: number;
            /** @enum {unknown} */
            action: "broadcast" | "relay" | "sign";
            payer: string;
            maxFee: string;
            fee?: string;
            reason?: string;
            chainHash?: string;
            sdkHash?: string;
            block?: components["schemas"]["BlockItem"];
            /** @default false */
            sending?: boolean;
        };
        /**
         * BlockItem
         * @description The block that executed the transaction in its sender's shard.
         */
        BlockItem: {
            shard: number;
            nonce: number;
            hash: string;
            timestamp: number;
        };
        /**
         * ErrorBody
         * @description Every error of the REST interface.
         */
        ErrorBody: {
            error: string;
        };
        /**
         * Readiness
         * @description Whether submissions are taken and their fate can be followed.
         */
        Readiness: {
            ready: boolean;
            relayers: {
                [key: string]: components["schemas"]["KeyReadiness"];
            };
        };
        /**
         * KeyReadiness
         * @description Whether a relayer key pays; amounts in atomic units, absent while its balance is not known.
         */
        KeyReadiness: {
            address: string;
            /** @enum {unknown} */
            state: "ok" | "paused" | "short of funds" | "unknown balance";
            spendable?: string;
            missing?: string;
        };
        /**
         * LatestBlocks
         * @description GET /v1/network-stats/blocks.
         */
        LatestBlocks: {
            blocks: {
                [key: string]: components["schemas"]["FinalBlock"][];
            };
        };
        /**
         * FinalBlock
         * @description A block whose execution is final; `tx_count` is what was proposed in it.
         */
        FinalBlock: {
            nonce: number;
            txCount: number;
            executedTxCount: number;
            timestampMs: number;
        };
        History: {
            /** @description Seconds of a point. */
            resolution: number;
            points: ({
                /** @description Milliseconds since the epoch. */
                ts: number;
            } & {
                [key: string]: number;
            })[];
        };
        Transactions: {
            transactions: components["schemas"]["TransactionJson"][];
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
